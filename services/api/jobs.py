"""Routes that read jobs: the list, one job, its timeline, and why it waits."""

import asyncio
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response

from events.ask import Why, WhyAsk
from events.base import JobId, Position, Recorded
from events.job import JobSubmitted
from events.log.port import Unknown
from projections.tables import event_index, job_view
from projections.tables.job_view import JobState
from runtime.serve_requests import ask
from services.api.documents import documents
from services.api.parts import AtLeast, Here, InHere, Tables, say_position
from services.api.problems import Troubled, trouble
from services.api.schemas import Job, JobDetail, Jobs, Listing, Stretch, Timeline, WhyAnswer
from services.gate.names import is_job_id, shown

router = APIRouter(prefix="/v1", tags=["jobs"])

READS_MAX: Final = 32  # records read from the log at once
WHY_S: Final = 2.0

WHY_DECODER: Final = msgspec.json.Decoder(Why)
ENDED: Final = frozenset(JobState) - job_view.OPEN


@router.get("/jobs")
async def list_jobs(
    here: InHere, response: Response, min_position: AtLeast, listing: Annotated[Listing, Query()]
) -> Jobs:
    """The jobs that fit all that is given, newest first. Jobs that come meanwhile never shift the pages."""
    states = frozenset(map(JobState, listing.state)) if listing.state else None
    which = job_view.Filter(team=_plain(listing.team), name=_plain(listing.name), states=states)
    limit, since = listing.limit, listing.since
    async with here.tables(min_position) as tables:
        found = await job_view.jobs(tables.db, which, before=_before(listing.cursor), limit=limit + 1)
    rows = [row for row in found[:limit] if since is None or row.submitted_at >= _aware(since)]
    more = len(found) > limit == len(rows)
    say_position(response, tables.position)
    next_cursor = str(rows[-1].submitted) if more else None
    return Jobs(jobs=[job_of(row) for row in rows], next_cursor=next_cursor, position=tables.position)


@router.get("/jobs/{job_id}")
async def get_job(job_id: str, here: InHere, response: Response, min_position: AtLeast) -> JobDetail:
    """One job. An id may be shortened as long as it is the only one that begins so."""
    async with here.tables(min_position) as tables:
        row = await job_named(tables, job_id)
    say_position(response, tables.position)
    return JobDetail(**job_of(row).model_dump(), spec=await _spec(here, row))


@router.get("/jobs/{job_id}/timeline", response_model=Timeline)
async def timeline(job_id: str, here: InHere, min_position: AtLeast, stretch: Annotated[Stretch, Query()]) -> Response:
    """What happened to a job, with the reports of its nodes, read from the event log."""
    async with here.tables(min_position) as tables:
        row = await job_named(tables, job_id)
        index = await event_index.of_job(tables.db, row.job_id, after=Position(stretch.after), limit=stretch.limit + 1)
    records = await read_all(here, [entry.position for entry in index[: stretch.limit]])
    head = {"job_id": row.job_id, "truncated": len(index) > stretch.limit, "position": tables.position}
    body = msgspec.json.encode(head)[:-1] + b',"events":' + documents(records) + b"}"
    response = Response(body, media_type="application/json")
    say_position(response, tables.position)
    return response


@router.get("/jobs/{job_id}/why")
async def why(job_id: str, here: InHere, response: Response, min_position: AtLeast) -> WhyAnswer:
    """Why a job waits, with the numbers, or what became of it: as the control plane sees it, else as the tables do."""
    found: tuple[job_view.Job, Position] | Troubled
    try:
        async with here.tables(min_position) as tables:
            found = await job_named(tables, job_id), tables.position
    except Troubled as troubled:
        if not is_job_id(job_id) or troubled.problem.status == HTTPStatus.GATEWAY_TIMEOUT:
            raise
        found = troubled  # the control plane may know it all the same
    said = await _control_says(here, JobId(job_id) if isinstance(found, Troubled) else found[0].job_id)
    if said is not None and said.found:
        answer = _told(said)
    elif isinstance(found, Troubled):
        raise found
    else:
        answer = _shown(*found, answered=said is not None)
    say_position(response, answer.position)
    return answer


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
        f"job_id: there is no job {shown(text)} at position {tables.position}",
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


def job_of(row: job_view.Job) -> Job:
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


async def _control_says(here: Here, job_id: JobId) -> Why | None:
    """What a control plane answers; None when none does."""
    asked = msgspec.json.encode(WhyAsk(job_id=job_id))
    reply = await ask(here.connection, here.subjects.why, asked, within_s=WHY_S)
    return None if reply is None else WHY_DECODER.decode(reply)


def _told(said: Why) -> WhyAnswer:
    return WhyAnswer(
        job_id=said.job_id,
        state=said.state,
        code=said.code,
        message=said.message,
        need=said.need,
        have=said.have,
        ahead=said.ahead,
        blockers=list(said.blockers),
        next_action=said.next_action,
        source="leader" if said.leader else "standby",
        note="",
        position=said.position,
    )


def _shown(row: job_view.Job, position: Position, *, answered: bool) -> WhyAnswer:
    """What the tables know, with a note of how old that is, unless the job has ended and nothing can be newer."""
    ended = row.state in ENDED
    note = ""
    if not ended:
        who = "the control plane does not know the job yet" if answered else "no control plane answered"
        note = f"{who}: this is what the tables showed at position {position}; numbers are missing"
    return WhyAnswer(
        job_id=row.job_id,
        state=row.state,
        code=row.hold_code or "",
        message=row.message or _sentence(row),
        need={"gpus": row.gpus},
        have={},
        ahead=0,
        blockers=[],
        next_action="",
        source="tables",
        note=note,
        position=position,
    )


def _sentence(row: job_view.Job) -> str:
    """What became of a job, in a sentence."""
    if row.ended_at is not None:
        cause = f": {_cause(row)}" if _cause(row) else ""
        code = f", exit code {row.exit_code}" if row.exit_code else ""
        node = f", on {row.failed_node}" if row.failed_node else ""
        was = "was " if row.state in {JobState.CANCELLED, JobState.REJECTED} else ""
        return f"It {was}{row.state.replace('_', ' ')} at {row.ended_at:%Y-%m-%d %H:%M:%S} UTC{cause}{code}{node}."
    return f"It waits: {row.hold_code.replace('_', ' ')}." if row.hold_code else f"It is {row.state}."


def _cause(row: job_view.Job) -> str:
    """Why it did not succeed; of a cancelled job what its user said, if anything."""
    if row.state == JobState.CANCELLED:
        return row.cancel_reason or ""
    return row.cause.replace("_", " ") if row.cause and row.state != JobState.SUCCEEDED else ""


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
