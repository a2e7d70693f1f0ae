"""Quota: what each team is entitled to, and what its queues allow."""
