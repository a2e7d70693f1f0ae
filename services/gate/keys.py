"""Idempotency keys of jobs and of asks of accounts: what each stands for, and the answer to whoever uses it again."""

from collections import OrderedDict
from typing import Final, NamedTuple

from events.ask import Accepted, Answer, RefusalCode, Refused
from events.base import AskId, JobId, Position, Recorded
from events.job import JobSubmitted
from events.keyed import Keyed
from events.subjects import family_subject

KNOWN_MAX: Final = 50_000  # keys whose repeat is answered without asking the log


class Standing(NamedTuple):
    """What a key stands for in the log: the first record of its subject."""

    key: str
    request_hash: str
    position: Position


class Keys:
    """The keys that were met last. The log holds all of them."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Standing] = OrderedDict()

    def learn(self, keyed: Keyed, position: Position) -> None:
        """From here on a repeat of what is recorded at `position` is answered from memory."""
        subject = family_subject(keyed)
        self._known[subject] = Standing(keyed.key, keyed.request_hash, position)
        self._known.move_to_end(subject)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def answer(self, keyed: Keyed) -> Answer | None:
        """The answer to what is asked under a key that is known here; None where it is not."""
        standing = self._known.get(family_subject(keyed))
        return compared(keyed, standing) if standing is not None else None


def answer_over(keyed: Keyed, first: Recorded) -> Answer:
    """The answer to what is asked under a key whose subject has a `first` record already."""
    event = first.event
    if not isinstance(event, Keyed):
        told = f"key: the record of {_named(keyed)} cannot be read by this version"
        hint = "use another key, and tell the operator: the log has a record that is not the gate's"
        return _conflict(keyed, told, hint)
    return compared(keyed, Standing(event.key, event.request_hash, first.position))


def compared(keyed: Keyed, standing: Standing) -> Answer:
    """The answer to what is asked under a key that was taken before: that again, or a conflict."""
    if (standing.key, standing.request_hash) == (keyed.key, keyed.request_hash):
        return Accepted(position=standing.position, job_id=job_id_in(keyed), ask_id=ask_id_in(keyed), repeated=True)
    if isinstance(keyed, JobSubmitted):
        told = f"key: {keyed.key!r} stands for {_named(keyed)}, whose spec is another one"
        return _conflict(keyed, told, "use a new key for a new job, or send the spec of the first ask")
    told = f"key: {keyed.key!r} stands for {_named(keyed)}, which asked something else of account {keyed.account!r}"
    return _conflict(keyed, told, "use a new key for a new ask, or send the first one again as it was")


def job_id_in(fact: object) -> JobId:
    """The job that a fact is about; empty for none."""
    return getattr(fact, "job_id", JobId(""))


def ask_id_in(fact: object) -> AskId:
    """The ask of an account that a fact is; empty for none."""
    return getattr(fact, "ask_id", AskId(""))


def _named(keyed: Keyed) -> str:
    return f"job {keyed.job_id}" if isinstance(keyed, JobSubmitted) else f"ask {keyed.ask_id}"


def _conflict(keyed: Keyed, told: str, hint: str) -> Refused:
    return Refused(code=RefusalCode.CONFLICT, message=told, hint=hint, job_id=job_id_in(keyed), ask_id=ask_id_in(keyed))
