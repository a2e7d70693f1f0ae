"""The standing documents that operators set, queues and policy: each only over the one that its writer saw."""

from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from events.ask import Accepted, Answer, RefusalCode, Refused, SetDocument, SetPolicy, SetQueues
from events.base import START, Position, Recorded
from events.log.port import Reader, Unknown
from events.policy import PolicySet
from events.queues import QueuesSet
from runtime.clock import Clock
from services.gate import queue_tree
from services.gate.lane import AWAY, moved
from services.gate.policy import checked_policy, policy_changes, policy_document, policy_oddities
from services.gate.queues import checked_queues, queues_document

QUEUES: Final = "queues"  # the subjects, each of one document
POLICY: Final = "policy"
AGAIN: Final = "try again in a moment: the document that holds already is not written twice"


class Held(NamedTuple):
    """The document that holds."""

    document: dict[str, Any]  # as it is typed
    position: Position  # `START`: nobody has set one
    recorded: Recorded | None


class Documents:
    """Reads and prepares standing documents. Asks become events that say what they replace."""

    def __init__(self, log: Reader, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def queues(self) -> Held:
        """The queues that hold, as typed. Raises `Unknown` when the log does not answer."""
        recorded = await self._log.last(QUEUES)
        event = recorded.event if recorded else None
        document = queues_document(event if isinstance(event, QueuesSet) else None)
        return Held(document, recorded.position if recorded else START, recorded)

    async def policy(self) -> Held:
        """The policy that holds, as typed. Raises `Unknown` when the log does not answer."""
        recorded = await self._log.last(POLICY)
        event = recorded.event if recorded else None
        document = policy_document(event if isinstance(event, PolicySet) else None)
        return Held(document, recorded.position if recorded else START, recorded)

    async def accounts(self) -> Held:
        """The accounts that hold, as typed. Raises `Unknown` when the log does not answer."""
        raise NotImplementedError

    async def prices(self) -> Held:
        """The prices that hold, as typed. Raises `Unknown` when the log does not answer."""
        raise NotImplementedError

    async def prepared(self, ask: SetDocument, by: str) -> "Prepared | Answer":
        """The event that an ask means, with what it changes; or the answer, where there is nothing to write.

        The document that holds already is accepted whatever the ask replaces: who asks again after a lost answer gets
        the answer that was lost.
        """
        if not isinstance(ask, SetQueues | SetPolicy):
            raise NotImplementedError
        now = self._clock.now()
        wanted = checked_queues(ask.document, now) if isinstance(ask, SetQueues) else checked_policy(ask.document, now)
        if isinstance(wanted, Refused):
            return wanted
        try:
            held = await self._log.last(QUEUES if isinstance(ask, SetQueues) else POLICY)
        except Unknown:
            return replace(AWAY, hint=AGAIN)
        position = held.position if held else START
        if held is not None and _same(held.event, wanted):
            return Accepted(position=position, repeated=True, warnings=_warnings(wanted, held))
        if ask.replaces is not None and ask.replaces != position:
            return moved(wanted, held)
        event = replace(wanted, by=by, trace=ask.trace, replaces=ask.replaces)
        return Prepared(event, position, _changes(event, held), _warnings(event, held))


class Prepared(NamedTuple):
    """A document that may be written."""

    event: QueuesSet | PolicySet
    position: Position  # of the one that holds
    changes: tuple[str, ...]
    warnings: tuple[str, ...]

    def told(self, answer: Answer) -> Answer:
        """The answer with what the document changes, where it was accepted."""
        if isinstance(answer, Refused):
            return replace(answer, hint=AGAIN) if answer.code in {RefusalCode.UNKNOWN, RefusalCode.BUSY} else answer
        return replace(answer, changes=self.changes, warnings=self.warnings)


def _same(held: object, wanted: QueuesSet | PolicySet) -> bool:
    if not isinstance(held, type(wanted)):
        return False
    return replace(held, at=wanted.at, by=wanted.by, trace=wanted.trace, replaces=wanted.replaces) == wanted


def _changes(event: QueuesSet | PolicySet, held: Recorded | None) -> tuple[str, ...]:
    before = held.event if held else None
    if isinstance(event, PolicySet):
        return tuple(policy_changes(before if isinstance(before, PolicySet) else None, event))
    return tuple(queue_tree.changes(before.queues if isinstance(before, QueuesSet) else (), event.queues))


def _warnings(event: QueuesSet | PolicySet, held: Recorded | None) -> tuple[str, ...]:
    if isinstance(event, PolicySet):
        return tuple(policy_oddities(event))
    before = held.event if held else None
    return tuple(queue_tree.oddities(event.queues, before.queues if isinstance(before, QueuesSet) else ()))
