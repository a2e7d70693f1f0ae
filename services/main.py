"""Wiring: which parts run together in one process, and with what settings."""
