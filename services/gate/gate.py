"""The gate: checks what users and operators ask and agents report, stamps who it was and when, records it, answers with the position."""

import asyncio
import hashlib
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from events.ask import (
    Accepted,
    AccountAsk,
    Answer,
    Cancel,
    NodeAsk,
    OperatorAsk,
    RefusalCode,
    Refused,
    Report,
    Resume,
    SetDocument,
    Submit,
)
from events.base import FLEET, JOB, Event, NodeId, Position, TeamId, Unreadable
from events.codec import EVENT_MAX_BYTES, Codec, Stamp, type_of
from events.job import JobCancelRequested, JobResumeAsked, JobSubmitted
from events.log.port import Log, Unknown
from events.node import NodeJoined
from events.subjects import family_subject
from runtime.clock import Clock
from runtime.logging import get_logger
from services.gate.account_asks import AccountAsks
from services.gate.documents import Documents, Prepared
from services.gate.lane import NO_ANSWER, WAITING_MAX, Counts, Lane
from services.gate.names import KEY_MAX, is_job_id, job_id_for, name_problem, near_name, shown
from services.gate.node_asks import NodeAsks, refusal_of_retired
from services.gate.reports import invalid, problem_of
from services.gate.resume import answer_to
from services.gate.spec import checked, request_hash

logger = get_logger(__name__)

MANY_MAX: Final = 1_000  # jobs submitted in one call
REASON_MAX: Final = 500  # characters
TRACE_MAX: Final = 200
FACT_BYTES_MAX: Final = EVENT_MAX_BYTES - 2_048  # with its headers it still fits into one message
STAMP: Final = Stamp("0" * 40)  # as long as the one that the log gives
REPEATS_MAX: Final = 10_000  # reports whose exact repeat is answered without a second record


class Gate:
    """Takes asks and reports in. Holds nothing that the log does not: any number run beside each other.

    `run` must be running; `open_gate` sees to it.
    """

    def __init__(self, log: Log, clock: Clock, *, waiting_max: int = WAITING_MAX) -> None:
        self._log = log
        self._clock = clock
        self._codec = Codec()
        self._asks = Lane(log, waiting_max=waiting_max)
        # Of its own, so that repeated submissions never delay a release.
        self._reports = Lane(log, waiting_max=waiting_max)
        # One at a time: each is written over the one before it, and a conflict is its own.
        self._settings = Lane(log, waiting_max=waiting_max, group_max=1)
        self.documents = Documents(log, clock)
        self._node_asks = NodeAsks(log, clock)
        self._account_asks = AccountAsks(log, clock)
        self._reported: OrderedDict[bytes, Position] = OrderedDict()
        self.answers: Counter[tuple[str, str]] = Counter()  # given so far, by what was asked and the outcome

    async def run(self) -> None:
        """Record what is taken in, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._asks.run())
            group.create_task(self._reports.run())
            group.create_task(self._settings.run())

    @property
    def counts(self) -> dict[str, Counts]:
        """What each lane has done."""
        return {"asks": self._asks.counts, "reports": self._reports.counts, "settings": self._settings.counts}

    async def submit(self, team: TeamId, ask: Submit, by: str) -> Answer:
        """Record that `team` wants a job. Its key again gives the same job, or a conflict when the spec is another one."""
        submitted = self._submitted(team, ask, by)
        if isinstance(submitted, Refused):
            return self._told("submit", submitted)
        return self._told("submit", await self._recorded(self._asks, [submitted]))

    async def submit_many(self, team: TeamId, asks: Sequence[Submit], by: str) -> list[Answer]:
        """Record many jobs, each answered for itself, in the order of the asks."""
        if len(asks) > MANY_MAX:
            message = f"jobs: are {len(asks)} in one call, {MANY_MAX} is the most"
            return [Refused(code=RefusalCode.TOO_LARGE, message=message, hint="divide them") for _ in asks]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.submit(team, ask, by)) for ask in asks]
        return [task.result() for task in tasks]

    async def cancel(self, team: TeamId, ask: Cancel, by: str) -> Answer:
        """Record that `team` no longer wants a job. Without effect on one that has ended."""
        return self._told("cancel", await self._cancel(team, ask, by))

    async def resume(self, team: TeamId, ask: Resume, by: str) -> Answer:
        """Record that a job of `team` may try again. Refused where it is not held for its failures; again, it is answered so."""
        return self._told("resume", await self._resume(team, ask, by))

    async def report(self, node_id: NodeId, report: Report) -> Answer:
        """Record what the agent of a node saw, in order, all or nothing."""
        return self._told("report", await self._report(node_id, report))

    async def ask_account(self, ask: AccountAsk, by: str) -> Answer:
        """Record what an operator asks of an account. Its key again gives the same answer, or a conflict when the ask is another.

        Whether it is done, the control plane decides, once it has read it.
        """
        asked = tag_of(ask)
        problem = _key_problem(ask.key) or _text_problem(ask.trace, ask.reason)
        fact = problem if problem is not None else await self._account_asks.prepared(ask, by)
        if isinstance(fact, Accepted | Refused):
            return self._told(asked, fact)
        return self._told(asked, await self._recorded(self._asks, [fact]))

    async def set_document(self, ask: SetDocument, by: str, *, dry_run: bool = False) -> Answer:
        """Record a document over the one that it replaces. The one that holds already, and a dry run: nothing is written."""
        asked = tag_of(ask)
        problem = _text_problem(ask.trace)
        prepared = problem if problem is not None else await self.documents.prepared(ask, by)
        if not isinstance(prepared, Prepared):
            return self._told(asked, prepared)
        if dry_run:
            return prepared.told(Accepted(position=prepared.position))
        return self._told(asked, prepared.told(await self._recorded(self._settings, [prepared.event])))

    async def ask_nodes(self, ask: NodeAsk, by: str) -> Answer:
        """Record what an operator says of nodes: of all of them, or nothing is written."""
        asked = tag_of(ask)
        problem = _text_problem(ask.trace, ask.reason)
        facts = problem if problem is not None else await self._node_asks.prepared(ask, by)
        if isinstance(facts, Accepted | Refused):
            return self._told(asked, facts)
        return self._told(asked, await self._recorded(self._asks, facts))

    def _told(self, asked: str, answer: Answer) -> Answer:
        """The answer, counted."""
        outcome = answer.code.value if isinstance(answer, Refused) else "repeated" if answer.repeated else "accepted"
        self.answers[asked, outcome] += 1
        return answer

    async def _resume(self, team: TeamId, ask: Resume, by: str) -> Answer:
        if (problem := _job_problem(team, ask)) is not None:
            return problem
        event = JobResumeAsked(
            at=self._clock.now(), by=by, trace=ask.trace, team=team, job_id=ask.job_id, reason=ask.reason
        )
        try:
            asked = await self._log.last(family_subject(event))
            said = await self._log.last(f"{JOB.name}.{team}.{ask.job_id}")
        except Unknown:
            return NO_ANSWER
        if asked is None:
            return _not_found(team, ask, "jobs lists those of the team; another team's cannot be resumed")
        answer = answer_to(ask, asked, said)
        return answer if answer is not None else await self._recorded(self._asks, [event])

    async def _cancel(self, team: TeamId, ask: Cancel, by: str) -> Answer:
        if (problem := _job_problem(team, ask)) is not None:
            return problem
        event = JobCancelRequested(
            at=self._clock.now(), by=by, trace=ask.trace, team=team, job_id=ask.job_id, reason=ask.reason
        )
        try:
            last = await self._log.last(family_subject(event))
        except Unknown:
            return NO_ANSWER
        if last is None:
            return _not_found(team, ask, "jobs lists those of the team; another team's cannot be cancelled")
        if isinstance(last.event, JobCancelRequested):
            return Accepted(position=last.position, job_id=ask.job_id, repeated=True)
        return await self._recorded(self._asks, [event])

    async def _report(self, node_id: NodeId, report: Report) -> Answer:
        problem = problem_of(node_id, report)
        if problem is not None:
            logger.info("report_refused", node_id=node_id[:40], code=problem.code, message=problem.message)
            return problem
        mark = hashlib.sha256(msgspec.json.encode(report)).digest()
        if mark in self._reported:
            return Accepted(position=self._reported[mark], repeated=True)
        if (refused := await self._refused_to_join(node_id, report)) is not None:
            logger.warning("joining_refused", node_id=node_id, message=refused.message)
            return refused
        now, by = self._clock.now(), f"node:{node_id}"
        facts: list[Event] = [msgspec.structs.replace(one, at=now, by=by) for one in report.reports]
        answer = await self._recorded(self._reports, facts)
        if isinstance(answer, Accepted):
            self._reported[mark] = answer.position
            while len(self._reported) > REPEATS_MAX:
                self._reported.popitem(last=False)
        return answer

    async def _refused_to_join(self, node_id: NodeId, report: Report) -> Refused | None:
        """Why a node that joins is not taken in: it was retired."""
        if not any(isinstance(one, NodeJoined) for one in report.reports):
            return None
        try:
            return refusal_of_retired(await self._log.last(f"{FLEET.name}.{node_id}"))
        except Unknown:
            return NO_ANSWER

    async def _recorded(self, lane: Lane, facts: Sequence[Event]) -> Answer:
        """Record facts, if every reader will be able to read them."""
        size = 0
        for fact in facts:
            payload = self._codec.encode(fact, STAMP)
            size += len(payload)
            read, _ = self._codec.decode(family_subject(fact), payload)
            if isinstance(read, Unreadable):
                return invalid(f"{type_of(type(fact))}: {read.reason}")
            if len(payload) > FACT_BYTES_MAX:
                return invalid(f"{type_of(type(fact))}: has {len(payload)} bytes, {FACT_BYTES_MAX} is the most")
        return await lane.record(facts, size=size)

    def _submitted(self, team: TeamId, ask: Submit, by: str) -> JobSubmitted | Refused:
        """The fact that an ask becomes, or why it does not."""
        problem = team_problem(team) or _key_problem(ask.key) or _text_problem(ask.trace)
        if problem is not None:
            return problem
        spec = checked(ask.spec, team)
        if isinstance(spec, Refused):
            return spec
        return JobSubmitted(
            at=self._clock.now(),
            by=by,
            trace=ask.trace,
            team=team,
            job_id=job_id_for(team, ask.key),
            spec=spec,
            key=ask.key,
            request_hash=request_hash(spec),
        )


@asynccontextmanager
async def open_gate(log: Log, clock: Clock, *, waiting_max: int = WAITING_MAX) -> AsyncIterator[Gate]:
    """A gate that runs until the block is left. At most `waiting_max` facts wait in each of its lanes."""
    gate = Gate(log, clock, waiting_max=waiting_max)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(gate.run())
        try:
            yield gate
        finally:
            running.cancel()


def tag_of(ask: OperatorAsk) -> str:
    """What an ask is called on the wire, and in metrics."""
    return str(type(ask).__struct_config__.tag)


def team_problem(team: TeamId) -> Refused | None:
    """What keeps this from being the name of a team; None for nothing."""
    problem = name_problem(team)
    near = near_name(team, 24) if problem else ""
    hint = f"for example {near}" if near else ""
    return Refused(code=RefusalCode.INVALID, message=f"team: {problem}", hint=hint) if problem else None


def _key_problem(key: str) -> Refused | None:
    if not 1 <= len(key) <= KEY_MAX:
        return invalid(f"key: must have 1 to {KEY_MAX} characters, not {len(key)}")
    if not key.isprintable():
        return invalid(f"key: {shown(key)} has a character that cannot be printed")
    return None


def _text_problem(trace: str, reason: str = "") -> Refused | None:
    if len(trace) > TRACE_MAX:
        return invalid(f"trace: has {len(trace)} characters, {TRACE_MAX} is the most")
    if len(reason) > REASON_MAX:
        return invalid(f"reason: has {len(reason)} characters, {REASON_MAX} is the most")
    odd = next(
        (mark for mark in reason if unicodedata.category(mark) == "Cc"), ""
    )  # it is shown on terminals, in a line
    return invalid(f"reason: has {odd!r}, which is no text; say it in one line") if odd else None


def _job_problem(team: TeamId, ask: Cancel | Resume) -> Refused | None:
    """What is wrong with an ask of a job, before the log is asked for it; None for nothing."""
    problem = team_problem(team) or _text_problem(ask.trace, ask.reason)
    if problem is None and not is_job_id(ask.job_id):
        return _not_found(team, ask, "an id is j and 13 characters, as submit answers it")
    return problem


def _not_found(team: TeamId, ask: Cancel | Resume, hint: str) -> Refused:
    return Refused(
        code=RefusalCode.NOT_FOUND, message=f"job_id: team {team!r} has no job {shown(ask.job_id)}", hint=hint
    )
