"""What is asked under an idempotency key: the first record of its subject, so that a key is taken once, for ever."""

from events.job import JobSubmitted
from events.teller import AdjustmentAsked, GrantAsked

Keyed = JobSubmitted | GrantAsked | AdjustmentAsked
