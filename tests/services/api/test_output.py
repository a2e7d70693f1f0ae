"""Lines out of pieces: whole, once, in order, however the pieces are cut."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from runtime.stored_messages import Message
from services.api.output import LINE_MAX, Lines, source_of
from services.api.schemas import LogLine

AT = datetime(2026, 1, 1, tzinfo=UTC)


def message(sequence: int, payload: bytes, *, rank: int = 0, offset: int | None = None) -> Message:
    """A piece of a rank's output as the stream has it."""
    headers = {} if offset is None else {"Muster-Offset": str(offset)}
    return Message(sequence, f"muster.main.log.node-1.jx.jx-1.{rank}", AT, headers, payload)


@given(st.lists(st.binary(max_size=12), max_size=20), st.data())
def test_pieces_that_come_again_change_nothing(pieces: list[bytes], data: st.DataObject) -> None:
    """Whatever an agent sends again from an earlier byte on, the text is that of the rank."""
    whole = b"".join(pieces)
    lines, read = Lines(), 0
    told: list[LogLine] = []
    for sequence, piece in enumerate(pieces, 1):
        back = data.draw(st.integers(0, read))
        read += len(piece)
        told += lines.take(message(sequence, whole[back:read], offset=back))
    told += lines.end()
    texts = whole.split(b"\n")
    texts = texts[:-1] if not texts[-1] else texts
    assert [line.text for line in told] == [
        text.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2] for text in texts
    ]


def test_reading_may_begin_anew_where_no_line_is_cut() -> None:
    """Before the first piece that began a line which has not ended."""
    lines = Lines()
    assert list(lines.take(message(5, b"be", offset=0))) == []
    assert (lines.safe, lines.last) == (4, 5)
    assert list(lines.take(message(7, b"whole\n", rank=1, offset=0)))
    assert (lines.safe, lines.last) == (4, 7)
    assert [line.text for line in lines.take(message(9, b"gun\n", offset=2))] == ["begun"]
    assert lines.safe == lines.last == 9


def test_a_line_without_end_is_told_in_pieces() -> None:
    """Nothing grows without bound."""
    lines = Lines()
    told = [line for n in range(3) for line in lines.take(message(n + 1, b"x" * LINE_MAX, offset=n * LINE_MAX))]
    assert [len(line.text) for line in told] == [LINE_MAX] * 3
    assert list(lines.end()) == []


def test_what_is_no_output_is_left_out() -> None:
    """A subject that no rank's output is on."""
    assert source_of("muster.main.log.node-1.jx") is None
    assert source_of("muster.main.log.node-1.jx.jx-1.x") is None
    assert list(Lines().take(Message(1, "muster.main.log.x", AT, {}, b"text\n"))) == []
