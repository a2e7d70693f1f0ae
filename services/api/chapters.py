"""Routes of the log itself: its chapters, and going on in the next one."""

from http import HTTPStatus
from typing import Final

import msgspec
from fastapi import APIRouter

from events.ask import RollAnswer, RollAsk
from events.base import Position, chapter_of, position_of, sequence_of
from events.chapter import ChapterClosed
from events.log.between import chapter_ends
from events.log.port import Reader, Unknown
from runtime.serve_requests import ask
from services.api import chapter_schemas as schemas
from services.api.jobs import log_away
from services.api.parts import InHere
from services.api.problems import trouble
from services.api.standing import Who

router = APIRouter(prefix="/v1", tags=["operating"])

ROLL_S: Final = 20.0
ANSWER: Final = msgspec.json.Decoder(RollAnswer)


@router.get("/log", summary="Get Chapters")
async def get_log(here: InHere) -> schemas.Log:
    """The chapters of the log, the oldest first. What is closed never changes, and is proved by its digest."""
    try:
        end = await here.log.end()
        ends = await chapter_ends(here.log, end)
        return schemas.Log(position=end, chapters=[await _chapter(here.log, last, end) for last in ends])
    except Unknown as error:
        raise log_away() from error


@router.post("/log:roll", summary="Roll Log")
async def roll(here: InHere, who: Who) -> schemas.Rolled:
    """Close this chapter of the log, and go on in the next. Answers once that is open; nothing is lost meanwhile."""
    reply = await ask(here.connection, here.subjects.roll, msgspec.json.encode(RollAsk(by=who)), within_s=ROLL_S)
    if not reply:
        told = "no control plane answered" if reply is None else "others ask for the same"
        raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, "control_away", told, "try again; muster log shows the chapters")
    rolled = ANSWER.decode(reply)
    if not rolled.opened:
        hint = "it may still be done: muster log shows the chapters"
        raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, "not_rolled", rolled.message, hint)
    return schemas.Rolled(
        chapter=chapter_of(rolled.opened), closed=rolled.closed, position=rolled.opened, gap_s=rolled.gap_s
    )


async def _chapter(log: Reader, last: Position, end: Position) -> schemas.Chapter:
    chapter = chapter_of(last)
    first, ending = await log.read(position_of(chapter, 1)), await log.read(last)
    closed = ending.event if ending is not None and last != end else None
    if not isinstance(closed, ChapterClosed):
        closed = None
    return schemas.Chapter(
        chapter=chapter,
        position=last,
        records=sequence_of(last),
        first_at=first.at if first is not None else None,
        last_at=ending.at if ending is not None else None,
        size_bytes=closed.size_bytes if closed is not None else None,
        digest=closed.digest if closed is not None else None,
        cause=closed.cause if closed is not None else None,
        by=closed.by if closed is not None else "",
    )
