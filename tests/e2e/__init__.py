"""A real cluster, driven by the muster command as its users do."""
