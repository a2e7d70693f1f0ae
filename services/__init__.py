"""The long-running services of the control plane and the command line."""
