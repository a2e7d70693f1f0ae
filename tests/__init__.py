"""Tests, mirroring the paths of the packages they test."""
