"""The attempts of a job, and in a sentence what ended each: from the tables, with the record in the log that says so."""

from collections.abc import Callable, Mapping
from typing import Final

from events.base import JobId, NodeId, Position, Recorded
from events.codec import type_of
from events.fleet import NodeLost
from events.gpu import GpuJudged
from events.job import FailureCategory, StopCause
from events.log.port import Reader, Unknown
from events.node import EndReason, NodeJoined
from projections.cluster.fitness import STOPS
from projections.tables import event_index, run_view
from projections.tables.event_index import IndexRow
from runtime.postgres import Connection, Pool
from services.api.schemas import Attempt, Evidence

EXPLAINED_MAX: Final = 20  # the last attempts, of which the records in the log are looked for
SIGNALLED: Final = 128  # 128 + n: ended by signal n

Found = tuple[run_view.Attempt, list[IndexRow]]


async def found(db: Pool | Connection, job_id: JobId) -> list[Found]:
    """The attempts of a job, the first one first, with where their evidence is: what the node that failed it was said to do."""
    attempts = await run_view.runs_of(db, job_id)
    explained = attempts[-EXPLAINED_MAX:]
    return [(run, await _evidence(db, run) if run in explained else []) for run in attempts]


async def _evidence(db: Pool | Connection, run: run_view.Attempt) -> list[IndexRow]:
    if run.failed_node is None or run.placed is None:
        return []
    return await event_index.evidence(db, run.run_id, run.failed_node, after=run.placed, until=run.position)


async def told(log: Reader, attempts: list[Found]) -> list[Attempt]:
    """As the API shows them. While the log does not answer, sentences are the shorter."""
    return [_shown(run, evidence, await _record(log, run, evidence)) for run, evidence in attempts]


async def _record(log: Reader, run: run_view.Attempt, evidence: list[IndexRow]) -> Recorded | None:
    """The record that says most of what ended the run: the first that does of those about its node."""
    types = SAYING.get(run.category or "", ())
    for row in _likely(run, [row for row in evidence if row.type in types]):
        try:
            record = await log.read(Position(row.position))
        except Unknown:
            return None
        if record is not None and (not isinstance(record.event, GpuJudged) or record.event.action in STOPS):
            return record
    return None


def _likely(run: run_view.Attempt, rows: list[IndexRow]) -> list[IndexRow]:
    """Of verdicts on GPUs the last one before the run was stopped comes first: many may have come in a long run."""
    if run.category != FailureCategory.GPU or run.stopping_at is None:
        return rows
    before = [row for row in rows if row.at <= run.stopping_at]
    return before[::-1] + rows[len(before) :]


def _shown(run: run_view.Attempt, evidence: list[IndexRow], record: Recorded | None) -> Attempt:
    return Attempt(
        attempt=run.attempt,
        run_id=run.run_id,
        state=run.state,
        category=run.category or "",
        cause=run.cause or "",
        node_id=run.failed_node or "",
        exit_code=run.exit_code,
        reason=run.reason or "",
        message=run.message,
        ended_by=sentence(run, record),
        held=run.held,
        gpus=run.gpus,
        nodes=run.nodes,
        node_ids=[str(node_id) for node_id in run.node_ids],
        placed_at=run.placed_at,
        started_at=run.started_at,
        stopping_at=run.stopping_at,
        ended_at=run.ended_at,
        checkpoint=run.checkpoint,
        saved_at=run.saved_at,
        lost_gpu_s=run.lost_gpu_s,
        evidence=[Evidence(event_id=row.event_id, type=row.type, position=row.position, at=row.at) for row in evidence],
    )


def sentence(run: run_view.Attempt, record: Recorded | None) -> str:
    """What ended the run, with the numbers of the record that says so; empty while it goes on, and where it ended well."""
    if run.ended_at is None or run.state == run_view.RunState.SUCCEEDED:
        return ""
    if (by_cause := BY_CAUSE.get(run.cause or "")) is not None:
        return by_cause(run)
    if (by_category := BY_CATEGORY.get(run.category or "")) is not None:
        return by_category(run, record)
    return (run.cause or run.state).replace("_", " ")


def _node(run: run_view.Attempt) -> str:
    return run.failed_node or NodeId("a node")


def _by_node(run: run_view.Attempt, record: Recorded | None) -> str:
    node, event = _node(run), record.event if record is not None else None
    match event:
        case NodeLost():
            return f"{node} was lost after {event.silent_s:.0f} s of silence"
        case NodeJoined():
            return f"{node} began another life"
        case _ if run.reason == EndReason.NODE_REBOOTED:
            return f"all that ran on {node} was ended: it was rebooted, or somebody did so"
        case _ if run.failed_node is None:
            return "its GPUs came back without a word how it ended"
        case _:
            return f"{node} was lost"


def _by_gpu(run: run_view.Attempt, record: Recorded | None) -> str:
    event = record.event if record is not None else None
    if not isinstance(event, GpuJudged):
        return f"a GPU of {_node(run)} failed"
    return f"{event.gpu_uuid} of {_node(run)} failed: {event.rule or event.signal} ({event.action})"


def _by_user(run: run_view.Attempt, _: Recorded | None) -> str:
    code = run.exit_code or 0
    signal = f" (signal {code - SIGNALLED})" if SIGNALLED < code <= SIGNALLED + 64 else ""
    return f"a rank on {_node(run)} exited with {code}{signal}"


BY_CAUSE: Final[Mapping[str, Callable[[run_view.Attempt], str]]] = {
    StopCause.START_FAILED: lambda run: (
        f"{_node(run)} could not start its ranks: {run.message or 'it did not say why'}"
    ),
    StopCause.START_DEADLINE: lambda run: f"{_node(run)} had not started its ranks in time",
    StopCause.DRAIN: lambda run: f"{_node(run)} was drained",
    StopCause.CREDITS: lambda _: "what was reserved for it was used up",
    StopCause.QUEUE_HELD: lambda _: "its queue was put on hold",
    StopCause.PREEMPTED: lambda run: f"it was stopped for {run.evicted_for or 'another job'}",
    StopCause.CONSOLIDATED: lambda run: f"it was moved for {run.evicted_for or 'another job'}",
    StopCause.CANCEL: lambda _: "it was cancelled",
}
BY_CATEGORY: Final[Mapping[str, Callable[[run_view.Attempt, Recorded | None], str]]] = {
    FailureCategory.NODE: _by_node,
    FailureCategory.GPU: _by_gpu,
    FailureCategory.USER: _by_user,
    FailureCategory.OUT_OF_MEMORY: lambda run, _: f"the kernel killed a rank on {_node(run)} for want of memory",
    FailureCategory.TIME_LIMIT: lambda _run, _: "it reached its time limit",
    FailureCategory.CONTROL_PLANE: lambda run, _: (
        f"{_node(run)} was cut off from the control plane, and ended its ranks"
    ),
}
SAYING: Final[Mapping[str, tuple[str, ...]]] = {
    FailureCategory.NODE: (type_of(NodeLost), type_of(NodeJoined)),
    FailureCategory.GPU: (type_of(GpuJudged),),
}
