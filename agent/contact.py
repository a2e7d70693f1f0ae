"""When the servers were heard last, what was promised to them then, and what the next heartbeat promises."""

from agent.core.patience import Contact, beats_every_s, ended_by_s
from agent.records import Records
from events.base import Position
from events.desired import Waiting
from runtime.clock import Clock


class Contacts:
    """Of one agent. What it promised is kept on the disk: one that restarts while it is cut off keeps it all the same."""

    def __init__(self, records: Records, boot_id: str, clock: Clock, *, lost_after_s: float) -> None:
        self._records = records
        self._boot_id = boot_id
        self._clock = clock
        self._unsaid_s = lost_after_s  # the patience, while nobody has said one
        self._waiting: Waiting | None = None
        now_s = clock.monotonic()
        self._contact = records.contact(boot_id) or Contact(sent_s=now_s, patience_s=lost_after_s)
        self._told_s = self._contact.told_s

    @property
    def silent_s(self) -> float:
        """Since the last heartbeat was sent that surely arrived."""
        return self._clock.monotonic() - self._contact.sent_s

    @property
    def ended_by_s(self) -> float:
        """The silence after which everything has ended that may be started elsewhere.

        By what was promised; or by what was told since, where that is less: nobody may have heard the promise.
        """
        contact = self._contact
        if self._waiting is None:
            return ended_by_s(contact.patience_s)
        told_s = self._waiting.after(max(0.0, contact.sent_s - self._told_s))
        return ended_by_s(min(contact.patience_s, told_s))

    @property
    def patience_s(self) -> float:
        """What a heartbeat promises now: the silence after which the node may be given up."""
        if self._waiting is None:
            return self._unsaid_s
        return self._waiting.after(self._clock.monotonic() - self._told_s)

    def every_s(self, asked_s: float) -> float:
        """Seconds between heartbeats."""
        return beats_every_s(asked_s, self._waiting.least_s if self._waiting is not None else self._unsaid_s)

    def told(self, waiting: Waiting | None, as_of: Position) -> None:
        """This is obeyed from the next heartbeat on. What an agent before this one read counts from when it did."""
        if as_of != self._records.as_of or self._told_s < 0:
            self._told_s = self._clock.monotonic()
        self._waiting = waiting

    def confirmed(self, sent_s: float, patience_s: float) -> None:
        """A heartbeat of then, with that promise, surely arrived."""
        self._contact = Contact(sent_s=sent_s, patience_s=patience_s, told_s=self._told_s)
        self._records.keep_contact(self._boot_id, self._contact)
