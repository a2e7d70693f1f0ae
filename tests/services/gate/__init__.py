"""Tests of services/gate."""
