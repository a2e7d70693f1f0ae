"""Tests of the process plumbing."""
