"""Tests of the muster command."""
