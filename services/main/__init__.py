"""Wiring: which parts run together in one process, with what settings, and how processes are started and ended."""
