"""What the auditor knows of chapters: each ends with its closing, begins with its opening, and holds what these prove."""

from events.base import START, Position, Recorded, chapter_of, spelled
from events.chain import extended, follows
from events.chapter import ChapterClosed, ChapterOpened
from projections.cluster.audit.books import Books


def read_chapters(books: Books, recorded: Recorded) -> None:
    """The record is in the digest of the log, with what is wrong with its chapter."""
    before, event = books.position, recorded.event
    crossed = before != START and chapter_of(recorded.position) != chapter_of(before)
    if crossed != isinstance(event, ChapterOpened):
        books.find(recorded, "chapters", f"{type(event).__name__} follows {spelled(before)}")
    if crossed != books.closed:
        told = "was closed, and goes on" if books.closed else "was not closed, and another begins"
        books.find(recorded, "chapters", f"chapter {chapter_of(before)} {told}")
    match event:
        case ChapterOpened() as e:
            _linked(books, recorded, e.previous)
            _proved(books, recorded, e.digest)
        case ChapterClosed() as e:
            if books.chain is not None and (e.records, e.size_bytes) != (books.chain.records, books.chain.size_bytes):
                told = f"{books.chain.records} records of {books.chain.size_bytes} bytes, not {e.records} of {e.size_bytes}"
                books.find(recorded, "chapters", f"chapter {e.chapter} holds {told}")
            _proved(books, recorded, e.digest)
        case _:
            pass
    books.closed = isinstance(event, ChapterClosed)
    if books.chain is not None:  # behind a gap nothing can be proved, and the gap is found
        books.chain = extended(books.chain, (recorded,)) if follows(books.chain.position, recorded) else None


def _linked(books: Books, recorded: Recorded, previous: Position) -> None:
    if previous != books.position:
        books.find(recorded, "chapters", f"it goes on from {spelled(previous)}, and follows {spelled(books.position)}")


def _proved(books: Books, recorded: Recorded, digest: str) -> None:
    if books.chain is not None and digest != books.chain.digest.hex():
        books.find(recorded, "digest", f"the log up to {spelled(books.position)} is not what was written")
