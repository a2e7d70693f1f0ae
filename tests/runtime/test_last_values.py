"""Last values in a stream, on a real server: read, written if nobody else did, and said plainly when no answer came."""

import asyncio

import pytest
from nats.js.api import StreamConfig

from events.desired import Desired
from events.subjects import Subjects
from runtime.embedded.nats import EmbeddedNats
from runtime.fault import Fault
from runtime.last_values import LastValues, Stored
from runtime.nats import Connection, connect
from tests.fixtures.waiting import until

SUBJECT = "muster.main.desired.n1"


@pytest.fixture
async def values(nats_connection: Connection) -> LastValues:
    """The last values of a stream that keeps one a subject."""
    await nats_connection.jetstream().add_stream(
        StreamConfig(name="DESIRED", subjects=["muster.main.desired.*"], max_msgs_per_subject=1)
    )
    return LastValues(nats_connection, "DESIRED")


async def test_a_value_that_was_never_written_is_none(values: LastValues) -> None:
    """Sequence 0: what a first write expects."""
    assert await values.get(SUBJECT) == Stored(0, b"")


async def test_what_was_written_last_is_read(values: LastValues) -> None:
    """Any bytes, with the sequence that the next write expects; other subjects are apart."""
    first = await values.put(SUBJECT, bytes(range(256)), after=0)
    assert first is not None
    assert await values.get(SUBJECT) == Stored(first, bytes(range(256)))
    second = await values.put(SUBJECT, b"", after=first)
    assert second == first + 1
    assert await values.get(SUBJECT) == Stored(second, b"")
    assert await values.put("muster.main.desired.n2", b"x", after=0) == second + 1


async def test_of_writers_at_once_one_is_taken(values: LastValues) -> None:
    """The others are told that the value has moved, and nothing of theirs is there."""
    wrote = await asyncio.gather(*(values.put(SUBJECT, str(n).encode(), after=0) for n in range(8)))

    assert sum(sequence is not None for sequence in wrote) == 1
    winner = next(n for n, sequence in enumerate(wrote) if sequence is not None)
    assert (await values.get(SUBJECT)).payload == str(winner).encode()
    assert await values.put(SUBJECT, b"late", after=0) is None


async def test_no_stream_and_no_server_are_faults(nats_server: EmbeddedNats, nats_connection: Connection) -> None:
    """With a code and what was being done; the values are there again when the server is."""
    values = LastValues(nats_connection, "DESIRED")
    with pytest.raises(Fault) as refused:
        await values.get(SUBJECT)
    assert refused.value.code == "stream_refused"
    with pytest.raises(Fault) as unheard:
        await values.put(SUBJECT, b"x", after=0)
    assert unheard.value.code == "no_answer"

    nats_server.kill()
    await nats_server.wait()
    await until(lambda: not nats_connection.is_connected)
    with pytest.raises(Fault) as away:
        await values.get(SUBJECT)
    assert (
        away.value.code,
        SUBJECT.split(".", maxsplit=1)[0] in away.value.sentence or "DESIRED" in away.value.sentence,
    ) == (
        "no_answer",
        True,
    )
    await nats_server.stop()
    await nats_server.start()


async def test_a_control_plane_has_the_rights_for_its_nodes(nats_server: EmbeddedNats, values: LastValues) -> None:
    """The dispatcher writes and reads with the rights of its own user."""
    del values  # the stream is there
    connection = await connect(nats_server.login("control"), name="control")
    try:
        own = LastValues(connection, "DESIRED")
        assert await own.put(Subjects().desired("node-1"), b"{}", after=0) == 1  # type: ignore[arg-type]  # a name
        assert (await own.get(Subjects().desired("node-1"))).payload == b"{}"  # type: ignore[arg-type]  # a name
    finally:
        await connection.close()
    assert Desired.__struct_config__.frozen
