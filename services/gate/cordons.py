"""What operators say of nodes, made into events: for nodes that the log knows, and only where it is news."""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from events.ask import Accepted, Answer, Cordon, RefusalCode, Refused, Uncordon
from events.base import START, Event, NodeId, Position
from events.log.port import Reader, Unknown
from events.operator import NodeCordoned, NodeUncordoned
from events.subjects import family_subject
from runtime.clock import Clock
from services.gate.lane import AWAY, LOOKUPS_MAX
from services.gate.names import name_problem, shown

NODES_MAX: Final = 1_000  # in one ask


class Cordons:
    """Prepares what an ask to cordon or uncordon writes."""

    def __init__(self, log: Reader, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def prepared(self, ask: Cordon | Uncordon, by: str) -> Sequence[Event] | Answer:
        """The events that an ask means, a node each; or the answer, where one is refused or none says anything new."""
        node_ids = sorted(set(ask.node_ids))
        if not 1 <= len(node_ids) <= NODES_MAX:
            message = f"node_ids: must be 1 to {NODES_MAX} nodes, not {len(node_ids)}"
            return Refused(code=RefusalCode.INVALID, message=message)
        for node_id in node_ids:
            if problem := name_problem(node_id):
                return Refused(code=RefusalCode.INVALID, message=f"node_ids: {problem}")
        kind = NodeCordoned if isinstance(ask, Cordon) else NodeUncordoned
        now = self._clock.now()
        facts = [kind(at=now, by=by, trace=ask.trace, node_id=one, reason=ask.reason) for one in node_ids]
        try:
            last = await self._said([*(f"node.{one}" for one in node_ids), *map(family_subject, facts)])
        except Unknown:
            return replace(AWAY, hint="try again in a moment")
        unknown = [one for one in node_ids if last[f"node.{one}"] is None]
        if unknown:
            return _not_found(unknown)
        before = [last[family_subject(fact)] for fact in facts]
        news = [fact for fact, one in zip(facts, before, strict=True) if _is_news(fact, one[0] if one else None)]
        if not news:
            return Accepted(position=max((one[1] for one in before if one), default=START), repeated=True)
        return news

    async def _said(self, subjects: Sequence[str]) -> dict[str, tuple[Event, Position] | None]:
        """The last event of each subject and its position, None where there is none. Raises `Unknown`."""
        gate = asyncio.Semaphore(LOOKUPS_MAX)

        async def look(subject: str) -> tuple[Event, Position] | None:
            async with gate:
                recorded = await self._log.last(subject)
            return (recorded.event, recorded.position) if recorded else None

        found = await asyncio.gather(*map(look, subjects))
        return dict(zip(subjects, found, strict=True))


def _is_news(fact: NodeCordoned | NodeUncordoned, last: Event | None) -> bool:
    """Whether a node is otherwise now, or so for another reason. One that nobody spoke of takes work."""
    if last is None:
        return isinstance(fact, NodeCordoned)
    same = isinstance(last, type(fact))
    return not same or bool(fact.reason and fact.reason != getattr(last, "reason", ""))


def _not_found(unknown: Sequence[NodeId]) -> Refused:
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return Refused(
        code=RefusalCode.NOT_FOUND,
        message=f"node_ids: no node {shown(unknown[0])}{more} has ever joined; nothing was written",
        hint="muster nodes lists those that have",
    )
