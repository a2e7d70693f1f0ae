"""Placing: whether a gang fits, and where."""
