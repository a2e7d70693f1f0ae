"""Benchmarks: measured figures of the control plane."""
