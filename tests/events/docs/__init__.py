"""Tests of events/docs/."""
