"""Chapters of the log: the last record of one (`chapter.<number>`), and the first of the next (`head`)."""

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from events.base import CHAPTER, Event, Family, Position
from events.head import HeadEvent

Many = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class RollCause(StrEnum):
    """Why a chapter was closed."""

    ASKED = "asked"  # by an operator
    RECORDS = "records"  # it holds as many as a chapter may
    BYTES = "bytes"  # likewise
    RESTORED = "restored"  # the log was put back from a copy, and goes on in a chapter of its own


class ChapterClosed(Event, kw_only=True, frozen=True, tag="musterbook.log.chapter_closed.v1"):
    """The last record of a chapter: nothing comes after it there, and what came before is proved by its digest."""

    family: ClassVar[Family] = CHAPTER

    chapter: Annotated[int, msgspec.Meta(ge=1)]
    log_id: str
    records: Many  # before this one
    size_bytes: Many  # of their documents
    digest: str  # of the log up to the record before this one, in hex: see `events.chain`
    cause: RollCause = RollCause.ASKED


class ChapterOpened(HeadEvent, kw_only=True, frozen=True, tag="musterbook.log.chapter_opened.v1"):
    """The first record of every chapter but the first: the log goes on here. It moves the head, and nothing else."""

    chapter: Annotated[int, msgspec.Meta(ge=2)]
    log_id: str
    previous: Position  # of the record that closed the chapter before
    digest: str  # of the log up to that record, in hex
