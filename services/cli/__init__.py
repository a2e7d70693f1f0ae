"""Command line: the muster command."""
