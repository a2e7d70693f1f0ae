"""Webhooks: events of the log, signed and sent to the addresses that want them, each at least once."""
