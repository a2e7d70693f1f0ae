"""The event stream: `/v1/events`, from any position, of everything or of one job, ending at the end or going on."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Annotated, Final, cast

from fastapi import APIRouter, Header, Query, Response

from events.base import JobId, Position, Recorded
from events.codec import TYPES, correlation_of, type_of
from events.log.port import Unknown
from projections.tables import event_index
from services.api.documents import document
from services.api.jobs import job_named, log_away, read_all
from services.api.parts import Here, InHere
from services.api.problems import Troubled, trouble
from services.api.schemas import Following
from services.api.sse import QUIET_MAX_S, STILL_HERE, sent_event
from services.gate.names import is_job_id, shown

router = APIRouter(prefix="/v1", tags=["events"])

PAGE: Final = 500  # of a job's events, read from the log at once
NAMES: Final = frozenset(type_of(cls) for cls in TYPES)
Wanted = Callable[[Recorded], bool]


@router.get(
    "/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}, "description": "id: position; data: the event."}},
)
async def events(
    here: InHere,
    which: Annotated[Following, Query()],
    last_event_id: Annotated[str, Header(alias="Last-Event-ID")] = "",
) -> Response:
    """Events in the order of the log, each with its position as id: with Last-Event-ID a client goes on where it was."""
    position = (
        Position(int(last_event_id)) if last_event_id.isascii() and last_event_id.isdigit() else Position(which.after)
    )
    wanted = _types(which.type)
    try:
        end = await here.log.end()
    except Unknown as error:
        raise log_away() from error
    if position > end:
        detail = f"from: {position} is beyond the end of the log, {end}"
        raise trouble(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", detail, "is it of another cluster?")
    job_id = await _job_id(here, which.job) if which.job else None
    until = None if which.follow else end
    chosen = _of_job(here, job_id, position, until) if job_id else _of_all(here, position, until)
    return here.streams.respond(_sent(here, chosen, wanted))


async def _sent(here: Here, records: AsyncGenerator[list[Recorded], None], wanted: Wanted) -> AsyncIterator[bytes]:
    """The records that are wanted, as server-sent events; now and then a comment while there are none."""
    spoke_s = here.clock.monotonic()
    async with aclosing(records):
        async for some in records:
            chunk = b"".join(
                sent_event(document(recorded), identity=recorded.position) for recorded in some if wanted(recorded)
            )
            now_s = here.clock.monotonic()
            if chunk or now_s - spoke_s >= QUIET_MAX_S:
                spoke_s = now_s
                yield chunk or STILL_HERE


async def _of_all(here: Here, position: Position, until: Position | None) -> AsyncGenerator[list[Recorded], None]:
    """All records after `position`, up to `until` where that is given."""
    if until is not None and position >= until:
        return
    following = cast("AsyncGenerator[tuple[Recorded, ...], None]", here.tail.follow(position))
    async with aclosing(following):
        async for stretch in following:
            yield [recorded for recorded in stretch if until is None or recorded.position <= until]
            if stretch and until is not None and stretch[-1].position >= until:
                return


async def _of_job(
    here: Here, job_id: JobId, position: Position, until: Position | None
) -> AsyncGenerator[list[Recorded], None]:
    """A job's records: up to where the tables are by their index, from there on out of all records.

    Without tables out of all records: that takes longer, and gives the same.
    """
    while True:
        try:
            async with here.tables() as tables:
                index = await event_index.of_job(tables.db, job_id, after=position, limit=PAGE)
        except Troubled:
            break
        found = await read_all(here, [row.position for row in index])
        yield [recorded for recorded in found if until is None or recorded.position <= until]
        position = index[-1].position if len(index) == PAGE else max(position, tables.position)
        if len(index) < PAGE:
            break
    async with aclosing(_of_all(here, position, until)) as rest:
        async for stretch in rest:
            yield [recorded for recorded in stretch if correlation_of(recorded.event) == job_id]


async def _job_id(here: Here, text: str) -> JobId:
    if is_job_id(text):
        return JobId(text)
    async with here.tables() as tables:
        return (await job_named(tables, text)).job_id


def _types(kinds: list[str] | None) -> Wanted:
    """Whether a record is of one of the types, which may be given short: `job.placed`."""
    if not kinds:
        return lambda _: True
    full = {kind if kind in NAMES else f"musterbook.{kind}.v1" for kind in kinds}
    if unknown := full - NAMES:
        detail = f"type: there is none {shown(min(unknown))}"
        raise trouble(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", detail, "docs/events.md lists them")
    return lambda recorded: type_of(type(recorded.event)) in full
