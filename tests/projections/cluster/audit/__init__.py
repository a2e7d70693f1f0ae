"""Tests of projections/cluster/audit."""
