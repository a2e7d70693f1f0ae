"""Cluster projection: the cluster's state folded in memory from the events."""
