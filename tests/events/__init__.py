"""Tests of events/."""
