"""Gate: takes commands in, checks them and records them as events."""
