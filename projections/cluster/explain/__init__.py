"""Explaining: why a job waits, in words and numbers."""
