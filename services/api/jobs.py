"""Routes that read jobs: the list, one job, and its timeline."""

import asyncio
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response

from events.base import Position, Recorded, spelled
from events.job import JobSubmitted
from events.log.port import Unknown
from projections.tables import bill_view, event_index, job_view, spending
from projections.tables.job_view import JobState
from services.api import attempts
from services.api.costs import Money, bill_of, costs_of
from services.api.credit_schemas import JobDetail, money
from services.api.documents import documents
from services.api.parts import AtLeast, Here, InHere, Tables
from services.api.problems import Troubled, trouble
from services.api.schemas import Job, Jobs, Listing, Stretch, Timeline
from services.gate.names import shown

router = APIRouter(prefix="/v1", tags=["jobs"])

READS_MAX: Final = 32  # records read from the log at once
ENDED: Final = frozenset(JobState) - job_view.OPEN


@router.get("/jobs")
async def list_jobs(here: InHere, min_position: AtLeast, listing: Annotated[Listing, Query()]) -> Jobs:
    """The jobs that fit all that is given, newest first. Jobs that come meanwhile never shift the pages."""
    states = frozenset(map(JobState, listing.state)) if listing.state else None
    which = job_view.Filter(team=_plain(listing.team), name=_plain(listing.name), states=states)
    limit, since = listing.limit, listing.since
    async with here.tables(min_position) as tables:
        found = await job_view.jobs(tables.db, which, before=_before(listing.cursor), limit=limit + 1)
        rows = [row for row in found[:limit] if since is None or row.submitted_at >= _aware(since)]
        costs = await costs_of(here.markets, tables.db, rows, here.clock.now())
    more = len(found) > limit == len(rows)
    next_cursor = str(rows[-1].submitted) if more else None
    return Jobs(
        jobs=[job_of(row, costs[row.job_id]) for row in rows], next_cursor=next_cursor, position=tables.position
    )


@router.get("/jobs/{job_id}")
async def get_job(job_id: str, here: InHere, min_position: AtLeast) -> JobDetail:
    """One job. An id may be shortened as long as it is the only one that begins so."""
    async with here.tables(min_position) as tables:
        row = await job_named(tables, job_id)
        costs = await costs_of(here.markets, tables.db, [row], here.clock.now())
        bills = await bill_view.bills_of(tables.db, row.job_id)
        runs = await attempts.found(tables.db, row.job_id)
        back = {one.run_id: one.micro for one in await spending.given_back(tables.db, [row.job_id])}
    told = job_of(row, costs[row.job_id]).model_dump()
    return JobDetail(
        **told,
        attempts=await attempts.told(here.log, runs),
        bills=[bill_of(bill, back.get(bill.run_id, 0)) for bill in bills],
        spec=await _spec(here, row),
    )


@router.get("/jobs/{job_id}/timeline", response_model=Timeline)
async def timeline(job_id: str, here: InHere, min_position: AtLeast, stretch: Annotated[Stretch, Query()]) -> Response:
    """What happened to a job, with the reports of its nodes, read from the event log."""
    async with here.tables(min_position) as tables:
        row = await job_named(tables, job_id)
        index = await event_index.of_job(tables.db, row.job_id, after=Position(stretch.after), limit=stretch.limit + 1)
    records = await read_all(here, [entry.position for entry in index[: stretch.limit]])
    head = {"job_id": row.job_id, "truncated": len(index) > stretch.limit, "position": tables.position}
    body = msgspec.json.encode(head)[:-1] + b',"events":' + documents(records) + b"}"
    return Response(body, media_type="application/json")


async def job_named(tables: Tables, text: str) -> job_view.Job:
    """The job whose id is, or alone begins with, `text`. Raises `Troubled`."""
    found = await job_view.named(tables.db, text)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(job.job_id for job in found[:5])
        raise trouble(
            HTTPStatus.CONFLICT, "ambiguous", f"job_id: several jobs begin with {shown(text)}: {ids}", "give more of it"
        )
    raise trouble(
        HTTPStatus.NOT_FOUND,
        "not_found",
        f"job_id: there is no job {shown(text)} at position {spelled(tables.position)}",
        "if it was just submitted, pass the position of the answer as min_position",
    )


async def read_all(here: Here, positions: list[Position]) -> list[Recorded]:
    """The records at these positions, in their order. Raises `Troubled` when the log does not answer."""
    at_once = asyncio.Semaphore(READS_MAX)

    async def read(position: Position) -> Recorded | None:
        async with at_once:
            return await here.log.read(position)

    try:
        found = await asyncio.gather(*map(read, positions))
    except Unknown as error:
        raise log_away() from error
    return [recorded for recorded in found if recorded is not None]


def log_away() -> Troubled:
    """What to raise when the log does not answer."""
    return trouble(
        HTTPStatus.SERVICE_UNAVAILABLE, "log_away", "the event log does not answer", "is NATS running? try again"
    )


def job_of(row: job_view.Job, costs: Money) -> Job:
    """A row as the API shows it."""
    ended_badly = row.state in ENDED and row.state != JobState.SUCCEEDED
    return Job(
        job_id=row.job_id,
        name=row.name,
        team=row.team,
        state=row.state,
        reason=row.hold_code or (row.cause or "" if ended_badly or row.state == JobState.STOPPING else ""),
        message=row.message,
        hold_code=row.hold_code or "",
        cause=row.cause or "",
        category=row.category or "",
        gpus=row.gpus,
        nodes=row.nodes,
        node_ids=list(row.node_ids),
        priority=row.priority,
        gpu_types=row.gpu_types.split(",") if row.gpu_types else [],
        attempt=row.attempt,
        run_id=row.run_id or "",
        key=row.key,
        submitted_by=row.submitted_by,
        submitted_at=row.submitted_at,
        admitted_at=row.admitted_at,
        placed_at=row.placed_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        not_before=row.not_before,
        exit_code=row.exit_code,
        failed_node=row.failed_node or "",
        cancel_requested_at=row.cancel_at,
        cancel_reason=row.cancel_reason or "",
        submitted_position=row.submitted,
        position=row.position,
        min_gpus=row.min_gpus,
        gpus_placed=row.gpus_placed,
        gpu_type=row.gpu_type or "",
        within=row.within or "",
        within_required=row.within_required,
        max_runtime_s=row.max_runtime_s,
        preemptible=row.preemptible,
        borrowing=row.borrowing,
        evictions=row.evictions,
        evicted_for=row.evicted_for or "",
        promised=row.promise is not None,
        promised_start=row.promised_start,
        earmarked=row.earmark is not None,
        account=costs.account,
        **money(reserves=costs.reserves_micro, cost=costs.cost_micro, given_back=costs.given_back_micro),
    )


async def _spec(here: Here, row: job_view.Job) -> dict[str, Any] | None:
    try:
        submitted = await here.log.read(row.submitted)
    except Unknown:
        return None
    if submitted is None or not isinstance(submitted.event, JobSubmitted):
        return None
    spec: dict[str, Any] = msgspec.to_builtins(msgspec.structs.asdict(submitted.event.spec))
    return spec


def _before(cursor: str | None) -> Position:
    if cursor is None:
        return job_view.NEWEST
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise trouble(
            HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", f"cursor: {shown(cursor)} is none", "use next_cursor as it came"
        )
    return Position(int(cursor))


def _plain(text: str | None) -> str | None:
    """A filter as the tables can compare it: what they cannot hold fits no row."""
    return None if text is None else text.replace("\0", "\ufffd")


def _aware(time: datetime) -> datetime:
    """A time without a zone is meant in UTC."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)
