"""Routes of what jobs print: a snapshot as JSON or plain text, or a stream that goes on until the job has ended, or is held."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from events.base import JobId
from events.job import HoldCode
from events.subjects import LOGS_STREAM
from runtime.fault import Fault
from runtime.stored_messages import Message, read_page
from services.api.jobs import ENDED, job_named
from services.api.output import Lines, subjects_of
from services.api.parts import AtLeast, Here, InHere
from services.api.problems import Troubled, trouble
from services.api.schemas import LINES_MAX, LogLine, LogLines, Printed
from services.api.sse import QUIET_MAX_S, STILL_HERE, sent_event
from services.gate.names import is_job_id

router = APIRouter(prefix="/v1", tags=["jobs"])

LINES_BYTES_MAX: Final = 16 << 20
LOOK_EVERY_S: Final = 0.25  # for more output
STATE_EVERY_S: Final = 1.0  # whether the job has ended
HELD: Final = "held"  # in place of a state: it waits for a person, and so would whoever follows it
LINGER_S: Final = 1.0  # after its end, for output that is still on its way


@router.get(
    "/jobs/{job_id}/logs",
    response_model=LogLines,
    responses={200: {"content": {"text/plain": {}, "text/event-stream": {}}}},
)
async def logs(
    job_id: str, here: InHere, min_position: AtLeast, which: Annotated[Printed, Query()], request: Request
) -> Response | LogLines:
    """What the ranks of a job printed: JSON, plain text where that is accepted, or server-sent events with `follow`."""
    full_id = await _full_id(here, job_id, min_position)
    resumed = request.headers.get("last-event-id", "")
    after = int(resumed) if resumed.isascii() and resumed.isdigit() else which.after
    output = Output(here, full_id, which.rank, after)
    if which.follow:
        return here.streams.respond(output.stream(which.tail))
    lines, truncated = await output.snapshot(which.tail)
    if "text/plain" in request.headers.get("accept", ""):
        return PlainTextResponse("".join(_text(line, which.rank) for line in lines))
    return LogLines(job_id=full_id, lines=lines, truncated=truncated)


class Output:
    """What one job printed, or one of its ranks."""

    def __init__(self, here: Here, job_id: JobId, rank: int | None, after: int) -> None:
        self._here = here
        self._job_id = job_id
        self._subjects = subjects_of(here.subjects, job_id, rank)
        self._lines = Lines(after)

    async def snapshot(self, last: int | None) -> tuple[list[LogLine], bool]:
        """The last lines so far, and whether older ones were left out. Raises `Troubled`."""
        kept: deque[LogLine] = deque()
        most, size, left_out = LINES_MAX if last is None else last, 0, False

        def keep(lines: Iterable[LogLine]) -> None:
            nonlocal size, left_out
            for line in lines:
                kept.append(line)
                size += len(line.text)
                while len(kept) > most or size > LINES_BYTES_MAX:
                    size -= len(kept.popleft().text)
                    left_out = True

        while page := await self._page():
            for message in page:
                keep(self._lines.take(message))
        keep(self._lines.end())
        return list(kept), left_out

    async def stream(self, last: int | None) -> AsyncIterator[bytes]:
        """Lines as server-sent events, as they come, until the job has ended, or is held, and nothing more of it comes."""
        if last is not None:
            so_far = await self._so_far(last)
            for place, line in enumerate(so_far, 1):
                yield _sent(line, identity=str(self._lines.safe) if place == len(so_far) else "")
        clock = self._here.clock
        spoke_s, state, ended_s, looked_s = clock.monotonic(), "", 0.0, -STATE_EVERY_S
        while True:
            page = await self._page()
            now_s = clock.monotonic()
            for message in page:
                for chunk in self._chunks(message):
                    spoke_s = now_s
                    yield chunk
            if page:
                ended_s = now_s if state else 0.0
                continue
            if state and now_s - ended_s >= LINGER_S:
                break
            if not state and now_s - looked_s >= STATE_EVERY_S:
                looked_s, ended_s, state = now_s, now_s, await self._end_state()
            if now_s - spoke_s >= QUIET_MAX_S:
                spoke_s = now_s
                yield STILL_HERE
            await asyncio.sleep(LOOK_EVERY_S)
        for line in self._lines.end():
            yield _sent(line)
        yield sent_event(b'{"state":"%s"}' % state.encode(), identity=self._lines.last, name="end")

    async def _so_far(self, last: int) -> list[LogLine]:
        """The last whole lines so far; one that has only begun is told once it has ended."""
        kept: deque[LogLine] = deque(maxlen=last)
        while page := await self._page():
            for message in page:
                kept.extend(self._lines.take(message))
        return list(kept)

    def _chunks(self, message: Message) -> Iterable[bytes]:
        """The lines that a message ends; the last of them says where to read on from."""
        lines = list(self._lines.take(message))
        for place, line in enumerate(lines, 1):
            yield _sent(line, identity=str(self._lines.safe) if place == len(lines) else "")

    async def _page(self) -> list[Message]:
        try:
            return await read_page(self._here.connection, LOGS_STREAM, self._subjects, after=self._lines.last)
        except Fault as fault:
            raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, fault.code, fault.sentence, fault.hint) from fault

    async def _end_state(self) -> str:
        """The state that the job ended in, `held` where it waits for a person; empty while neither, or nobody can say."""
        try:
            async with self._here.tables() as tables:
                job = await job_named(tables, self._job_id)
        except Troubled:
            return ""
        if job.hold_code == HoldCode.FAILED_TOO_OFTEN:
            return HELD
        return str(job.state) if job.state in ENDED else ""


async def _full_id(here: Here, text: str, min_position: int | None) -> JobId:
    """The id of a job. What the tables cannot tell is taken as it is, if it is whole: its output needs no tables."""
    try:
        async with here.tables(min_position) as tables:
            return (await job_named(tables, text)).job_id
    except Troubled as troubled:
        if is_job_id(text) and troubled.problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return JobId(text)
        raise


def _sent(line: LogLine, identity: str = "") -> bytes:
    return sent_event(line.model_dump_json().encode(), identity=identity)


def _text(line: LogLine, rank: int | None) -> str:
    return f"{line.text}\n" if rank is not None else f"{line.rank}: {line.text}\n"
