"""What ranks printed, as lines: pieces from the LOGS stream put together, what came twice left out."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from events.base import JobId
from events.subjects import Subjects
from runtime.stored_messages import Message
from services.api.schemas import LogLine

OFFSET: Final = "Muster-Offset"  # which byte of the rank's output a piece begins with
LINE_MAX: Final = 64 * 1024  # bytes; a longer one is told in pieces


class Source(NamedTuple):
    """Whose output it is."""

    node_id: str
    run_id: str
    rank: int


class Begun(NamedTuple):
    """A line that has not ended yet, and the message that its first byte came with."""

    message: Message
    text: bytes


class Lines:
    """Puts lines together from the pieces of many ranks. `safe` is where reading may begin anew without losing any."""

    def __init__(self, after: int = 0) -> None:
        self._read: dict[Source, int] = {}  # bytes of each output so far
        self._begun: dict[Source, Begun] = {}
        self._last = after

    @property
    def last(self) -> int:
        """The sequence of the last message that was taken."""
        return self._last

    @property
    def safe(self) -> int:
        """The sequence after which to read on: before the first message that began a line which has not ended."""
        return min((begun.message.sequence - 1 for begun in self._begun.values()), default=self._last)

    def take(self, message: Message) -> Iterator[LogLine]:
        """The lines that a message ends."""
        self._last = message.sequence
        source = source_of(message.subject)
        if source is None:
            return
        piece = self._new_part(source, message)
        begun = self._begun.pop(source, Begun(message, b""))
        whole = begun.text + piece
        *ended, rest = whole.split(b"\n")
        for text in ended:
            yield _line(source, message, text)
        while len(rest) >= LINE_MAX:
            yield _line(source, message, rest[:LINE_MAX])
            rest = rest[LINE_MAX:]
        if rest:
            self._begun[source] = Begun(begun.message if not ended else message, rest)

    def end(self) -> Iterator[LogLine]:
        """The lines that were begun and will not go on."""
        for source, begun in sorted(self._begun.items(), key=lambda item: item[1].message.sequence):
            yield _line(source, begun.message, begun.text)
        self._begun.clear()

    def _new_part(self, source: Source, message: Message) -> bytes:
        """What of a piece was not taken before: after an agent's restart, some of its output comes again."""
        said = message.headers.get(OFFSET, "")
        if not said.isdigit():
            return message.payload
        offset, read = int(said), self._read.get(source)
        self._read[source] = max(read or 0, offset + len(message.payload))
        return message.payload if read is None else message.payload[max(0, read - offset) :]


def subjects_of(subjects: Subjects, job_id: JobId, rank: int | None) -> str:
    """The filter of a job's output, or of one rank's."""
    return f"muster.{subjects.cell}.log.*.{job_id}.*.{'*' if rank is None else rank}"


def source_of(subject: str) -> Source | None:
    """Whose output a subject carries; None for a subject that nobody's does."""
    tokens = subject.split(".")
    if len(tokens) != 7 or not tokens[6].isdigit():
        return None
    return Source(tokens[3], tokens[5], int(tokens[6]))


def _line(source: Source, message: Message, text: bytes) -> LogLine:
    """A line as terminals would show it: of what overwrote itself, the last."""
    shown = text.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    return LogLine(
        rank=source.rank, stream="output", text=shown, at=message.at, run_id=source.run_id, node_id=source.node_id
    )
