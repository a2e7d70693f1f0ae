"""Lifecycle: decides how a job and its ranks move from state to state."""
