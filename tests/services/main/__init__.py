"""Tests of how processes are wired together."""
