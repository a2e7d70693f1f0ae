"""What operators say of nodes, made into events: for nodes that the log knows, and only where it is news."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from events.ask import (
    Accepted,
    Answer,
    CancelMaintenance,
    Cordon,
    Drain,
    Maintain,
    NodeAsk,
    RefusalCode,
    Refused,
    ReturnGpus,
    Uncordon,
    Undrain,
)
from events.base import START, Event, NodeId, Position, Recorded
from events.fleet import DrainCause, NodeRetired
from events.log.port import Reader, Unknown
from events.operator import (
    GpuReturnAsked,
    MaintenanceCancelled,
    MaintenancePlanned,
    NodeCordoned,
    NodeDrainAsked,
    NodeUncordoned,
    NodeUndrainAsked,
    OperatorEvent,
)
from events.subjects import family_subject
from runtime.clock import Clock
from services.gate.lane import AWAY, LOOKUPS_MAX
from services.gate.names import name_problem, shown

NODES_MAX: Final = 1_000  # in one ask
GPUS_MAX: Final = 63  # of one node
AHEAD_MAX: Final = timedelta(days=3_660)  # that maintenance is planned
OPERATORS_CAUSES: Final = frozenset({DrainCause.OPERATOR, DrainCause.UPGRADE, DrainCause.RETIRE})
ENDS_OF_NOTHING: Final = (NodeUncordoned, NodeUndrainAsked)  # of a node that nobody spoke of, these say nothing


class NodeAsks:
    """Prepares what an ask about nodes writes."""

    def __init__(self, log: Reader, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def prepared(self, ask: NodeAsk, by: str) -> Sequence[Event] | Answer:
        """The events that an ask means, one a node or GPU; or the answer, where one is refused or none says anything new."""
        node_ids = [ask.node_id] if isinstance(ask, ReturnGpus) else sorted(set(ask.node_ids))
        now = self._clock.now()
        problem = _nodes_problem(node_ids) or _problem(ask, now)
        if problem:
            return Refused(code=RefusalCode.INVALID, message=problem)
        facts = [fact for node_id in node_ids for fact in _facts(ask, node_id, now, by)]
        lives = (subject for node_id in node_ids for subject in (f"node.{node_id}", f"fleet.{node_id}"))
        subjects = dict.fromkeys([*lives, *map(family_subject, facts)])
        try:
            last = await self._last(list(subjects))
        except Unknown:
            return msgspec.structs.replace(AWAY, hint="try again in a moment")
        unknown = [one for one in node_ids if last[f"node.{one}"] is None]
        if unknown:
            return _not_found(unknown)
        if (
            refused := next(filter(None, (refusal_of_retired(last[f"fleet.{one}"]) for one in node_ids)), None)
        ) is not None:
            return refused
        before = [last[family_subject(fact)] for fact in facts]
        news = [
            fact
            for fact, one in zip(facts, before, strict=True)
            if _is_news(fact, one.event if one else None)
            or _ends_what_came_since(fact, one, last[f"fleet.{fact.node_id}"])
        ]
        if not news:
            positions: list[Position] = [one.position for one in before if one]
            return Accepted(position=max(positions, default=START), repeated=True)
        return news

    async def _last(self, subjects: Sequence[str]) -> Mapping[str, Recorded | None]:
        """The last record of each subject, None where there is none. Raises `Unknown`."""
        gate = asyncio.Semaphore(LOOKUPS_MAX)

        async def look(subject: str) -> Recorded | None:
            async with gate:
                return await self._log.last(subject)

        found = await asyncio.gather(*map(look, subjects))
        return dict(zip(subjects, found, strict=True))


def _nodes_problem(node_ids: Sequence[NodeId]) -> str:
    if not 1 <= len(node_ids) <= NODES_MAX:
        return f"node_ids: must be 1 to {NODES_MAX} nodes, not {len(node_ids)}"
    problems = (name_problem(node_id) for node_id in node_ids)
    return next((f"node_ids: {problem}" for problem in problems if problem), "")


def _problem(ask: NodeAsk, now: datetime) -> str:
    """What is wrong with an ask beside its nodes; empty for nothing."""
    match ask:
        case Drain():
            if not ask.reason.strip():
                return "reason: must be said: others will ask why the node is drained"
            if ask.cause not in OPERATORS_CAUSES:
                causes = ", ".join(sorted(cause.value for cause in OPERATORS_CAUSES))
                return f"cause: {ask.cause.value} is not an operator's; theirs are {causes}"
        case Maintain() | CancelMaintenance():
            if problem := name_problem(ask.window):
                return f"window: {problem}"
            if isinstance(ask, Maintain) and ask.ends <= max(ask.starts, now):
                return f"ends: must be after starts and in the future, not {ask.ends.isoformat()}"
            if isinstance(ask, Maintain) and ask.ends > now + AHEAD_MAX:
                return f"ends: must be within {AHEAD_MAX.days} days, not {ask.ends.isoformat()}"
        case ReturnGpus():
            if not 1 <= len(set(ask.gpu_uuids)) <= GPUS_MAX:
                return f"gpu_uuids: must be 1 to {GPUS_MAX} GPUs, not {len(set(ask.gpu_uuids))}"
        case Cordon() | Uncordon() | Undrain():
            pass
    return ""


def _facts(ask: NodeAsk, node_id: NodeId, now: datetime, by: str) -> list[OperatorEvent]:
    """What the ask says of one node."""
    match ask:
        case Cordon():
            return [NodeCordoned(at=now, by=by, trace=ask.trace, node_id=node_id, reason=ask.reason)]
        case Uncordon():
            return [NodeUncordoned(at=now, by=by, trace=ask.trace, node_id=node_id, reason=ask.reason)]
        case Drain(deadline=deadline, cause=cause):
            said = NodeDrainAsked(at=now, by=by, trace=ask.trace, node_id=node_id, reason=ask.reason)
            due = max(deadline, now) if deadline is not None else None  # one that is past is now
            return [msgspec.structs.replace(said, deadline=due, cause=cause)]
        case Undrain():
            return [NodeUndrainAsked(at=now, by=by, trace=ask.trace, node_id=node_id, reason=ask.reason)]
        case Maintain(window=window, starts=starts, ends=ends):
            planned = MaintenancePlanned(at=now, by=by, node_id=node_id, window=window, starts=starts, ends=ends)
            return [msgspec.structs.replace(planned, reason=ask.reason, trace=ask.trace)]
        case CancelMaintenance(window=window):
            cancelled = MaintenanceCancelled(at=now, by=by, node_id=node_id, window=window)
            return [msgspec.structs.replace(cancelled, reason=ask.reason, trace=ask.trace)]
        case ReturnGpus(gpu_uuids=uuids):
            return [
                GpuReturnAsked(at=now, by=by, trace=ask.trace, node_id=node_id, reason=ask.reason, gpu_uuid=uuid)
                for uuid in sorted(set(uuids))
            ]


def _is_news(fact: OperatorEvent, last: Event | None) -> bool:
    """Whether it says anything that the last word on the node did not. What is said of GPUs may always be said again."""
    if last is None:
        return not isinstance(fact, ENDS_OF_NOTHING)
    if type(last) is not type(fact) or isinstance(fact, GpuReturnAsked):
        return True
    assert isinstance(last, OperatorEvent)
    said = msgspec.structs.replace(fact, at=last.at, by=last.by, trace=last.trace, reason=fact.reason or last.reason)
    if isinstance(said, NodeDrainAsked) and isinstance(last, NodeDrainAsked) and last.deadline is not None:
        past = said.deadline is not None and max(said.deadline, last.deadline) <= fact.at
        said = msgspec.structs.replace(said, deadline=last.deadline) if past else said  # it is over either way
    return said != last


def _ends_what_came_since(fact: OperatorEvent, before: Recorded | None, fleet: Recorded | None) -> bool:
    """Whether it may end a drain of the control plane's own, which has spoken of the node since operators did."""
    if not isinstance(fact, NodeUndrainAsked) or fleet is None:
        return False
    return before is None or before.position < fleet.position


def refusal_of_retired(last: Recorded | None) -> Refused | None:
    """Why nothing is taken of a node any more that was retired, by the last that the control plane said of it."""
    if last is None or not isinstance(last.event, NodeRetired):
        return None
    node_id = last.event.node_id
    return Refused(
        code=RefusalCode.FORBIDDEN,
        message=f"node {node_id} was retired for good at {last.at:%Y-%m-%d %H:%M:%S} UTC: nothing is taken of it any more",
        hint="a machine that comes back joins under a name that no node has had: set MUSTER_NODE_ID",
    )


def _not_found(unknown: Sequence[NodeId]) -> Refused:
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return Refused(
        code=RefusalCode.NOT_FOUND,
        message=f"node_ids: no node {shown(unknown[0])}{more} has ever joined; nothing was written",
        hint="muster nodes lists those that have",
    )
