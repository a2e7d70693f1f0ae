"""Tests of projections/cluster/placing."""
