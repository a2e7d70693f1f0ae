"""Which chapters the log has, as its servers know: the newest one, and what closed ones hold. Those never change."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from events.base import Position, position_of
from events.log.server import NoAnswer, Raw, Way, record_of, standing_of
from events.subjects import Subjects, events_stream

KEPT_MAX: Final = 4_096  # answers of closed chapters that are remembered
SUBJECTS_MAX: Final = 250  # looked for in one request

End = Literal["first", "last"]


class Newest(NamedTuple):
    """The newest chapter that has a record."""

    chapter: int
    last: int  # sequence
    takes: bool  # what is written now; else it is being closed


class Chapters:
    """The chapters of a log, over a way to its servers. All but the newest are closed."""

    def __init__(self, way: Way, subjects: Subjects) -> None:
        self._way = way
        self._subjects = subjects
        self._kept: dict[tuple[int, End, str], Raw | None] = {}
        self.seen = 1  # the newest that was seen: where looking begins

    async def newest(self) -> Newest:
        """The newest chapter, as the leaders of its streams know. Raises `NoAnswer`."""
        chapter = self.seen  # others may look at the same time, and see more
        while True:
            standing = await standing_of(self._way, events_stream(chapter))
            if not standing.created and chapter > 1:  # another log took the place of the one that was seen
                chapter = self.seen = 1
            elif not standing.created or f"{self._subjects.events_prefix}>" in standing.subjects:
                return Newest(chapter, standing.last, takes=True)
            elif not (await standing_of(self._way, events_stream(chapter + 1))).last:
                return Newest(chapter, standing.last, takes=False)
            else:
                chapter += 1
                self.seen = max(self.seen, chapter)

    async def first(self, subject: str) -> tuple[int, Raw] | None:
        """The first record on a subject, and its chapter. Raises `NoAnswer`."""
        chapter = 0
        while chapter < self.seen or chapter < (await self.newest()).chapter:
            chapter += 1
            if raw := await self._record(chapter, "first", subject):
                return chapter, raw
        return None

    async def last(self, subject: str) -> tuple[int, Raw] | None:
        """The last record on a subject, and its chapter. Raises `NoAnswer`."""
        while True:
            asked = self.seen
            raw, newest = await asyncio.gather(self._record(asked, "last", subject), self.newest())
            if newest.chapter == asked:
                break
        for chapter in range(asked, 0, -1):
            if raw := raw if chapter == asked else await self._record(chapter, "last", subject):
                return chapter, raw
        return None

    async def _record(self, chapter: int, end: End, subject: str) -> Raw | None:
        key = (chapter, end, subject)
        if key in self._kept:
            return self._kept[key]
        query = {"last_by_subj": subject} if end == "last" else {"seq": 1, "next_by_subj": subject}
        closed = chapter < self.seen  # by now: what is read from here on is what it holds for ever
        raw = await record_of(self._way, events_stream(chapter), query)
        if closed:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[key] = raw
        return raw

    async def lasts(self, subjects: Collection[str], *, before: int) -> dict[str, Position]:
        """The last record on each subject in the chapters before one, where there is any. Raises `NoAnswer`."""
        asked = sorted(subjects)
        parts = [asked[n : n + SUBJECTS_MAX] for n in range(0, len(asked), SUBJECTS_MAX)]
        older = [(chapter, part) for chapter in range(1, before) for part in parts]
        found: dict[str, Position] = {}
        for (chapter, _), raws in zip(older, await asyncio.gather(*(self._lasts(*one) for one in older)), strict=True):
            found |= {raw.subject: position_of(chapter, raw.sequence) for raw in raws}
        return found

    async def _lasts(self, chapter: int, subjects: Sequence[str]) -> list[Raw]:
        """The last records of a closed chapter on these subjects; any of its servers may answer."""
        closing = self._subjects.closing(chapter)
        query = msgspec.json.encode({"multi_last": [closing, *subjects]})
        raws = await self._way.get(events_stream(chapter), query)
        if not raws or raws[-1].subject != closing:  # a server that has it has all, and it comes after all else
            raise NoAnswer(f"a server does not know yet that chapter {chapter} is closed")
        return raws[:-1]
