"""Tests of agent/core/."""
