"""Tests of the tables, on a real PostgreSQL."""
