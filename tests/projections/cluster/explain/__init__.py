"""Tests of projections/cluster/explain."""
