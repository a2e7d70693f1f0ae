"""Tests of the embedded servers, on real ones."""
