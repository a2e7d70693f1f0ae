"""Tests of projections/cluster/quota."""
