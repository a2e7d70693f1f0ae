"""The audit: an independent reading of the log."""
