"""The very cores of the control plane on a virtual clock: what a policy would make of a workload."""
