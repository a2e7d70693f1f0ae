"""What an append and a record write: subjects, bytes, ids and fences, the same for every log."""

from collections.abc import Sequence
from typing import NamedTuple

from events.base import HEAD, START, Event, Position, StandingDocument
from events.codec import Codec, Stamp
from events.keyed import Keyed
from events.log.port import BATCH_MAX, Conflict
from events.subjects import Subjects, family_subject


class Writing(NamedTuple):
    """A record to be."""

    subject: str
    payload: bytes
    expected: Position | None = None  # of the last record on the subject; `START`: there is none; None: whatever it is


class Pen(NamedTuple):
    """How one writer writes down events."""

    subjects: Subjects
    codec: Codec
    source: str  # CloudEvents `source`: ids are unique within it

    def decided(self, events: Sequence[Event], after: Position) -> list[Writing]:
        """What an append writes. The ids derive from the head: deciding again on it names the same events.

        They are unique all the same, since only one decision on a head is ever written.
        """
        assert events, "an append has at least the record on head"
        assert events[0].family is HEAD, "the first event of an append is the record on head"
        assert all(event.family is not HEAD for event in events[1:]), "an append has one record on head"
        name = f"{after:x}"
        first, *others = self._written(events, name, cause=f"{name}-0")
        return [first._replace(expected=after), *others]

    def facts(self, facts: Sequence[Event], name: str) -> list[Writing]:
        """What recording facts writes; `name` never came before. Raises `Conflict` where a batch contradicts itself."""
        assert facts, "nothing to record"
        writings = self._written(facts, name, cause="")
        seen: set[str] = set()
        for n, fact in enumerate(facts):
            subject = writings[n].subject
            if isinstance(fact, Keyed):
                if subject in seen:
                    raise Conflict(f"{subject} is not new in its own batch.", code="log_submitted_late")
                writings[n] = writings[n]._replace(expected=START)
            elif isinstance(fact, StandingDocument) and fact.replaces is not None:
                if subject in seen:
                    raise Conflict(f"{subject} is set twice in one batch.", code="log_document_twice")
                writings[n] = writings[n]._replace(expected=fact.replaces)
            seen.add(subject)
        return writings

    def _written(self, events: Sequence[Event], name: str, *, cause: str) -> list[Writing]:
        """One writing an event; each but the first because of `cause`."""
        assert len(events) <= BATCH_MAX, f"{len(events)} events at once; the most is {BATCH_MAX}"
        prefix, encode, source = self.subjects.events_prefix, self.codec.encode, self.source
        return [
            Writing(prefix + family_subject(event), encode(event, Stamp(f"{name}-{n}", source, cause if n else "")))
            for n, event in enumerate(events)
        ]
