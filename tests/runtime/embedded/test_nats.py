"""The embedded NATS server: what it promises at start, at stop, in a crash, and when its parent dies."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from events.log.port import BATCH_MAX
from runtime.children import processes
from runtime.embedded.nats import EmbeddedNats, server_program
from runtime.embedded.nats_config import PAYLOAD_BYTES_MAX
from runtime.fault import Fault
from runtime.nats import Connection, connect
from tests.fixtures.waiting import until


def _serving(folder: Path) -> list[int]:
    """The servers that run on a data directory."""
    return processes(lambda argv: any(word.startswith(str(folder)) for word in argv))


def _started(*argv: str) -> subprocess.Popen[bytes]:
    """A process that is not bound to us."""
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


async def _write(server: EmbeddedNats, payload: bytes) -> int:
    connection = await connect(server.login("system"), name="test")
    jetstream = connection.jetstream()
    await jetstream.add_stream(name="KEPT", subjects=["kept"])
    sequence = (await jetstream.publish("kept", payload)).seq
    await connection.close()
    return sequence


async def _read(server: EmbeddedNats, sequence: int) -> bytes | None:
    connection = await connect(server.login("system"), name="test")
    message = await connection.jetstream().get_msg("KEPT", sequence)
    await connection.close()
    return message.data


async def test_what_was_acknowledged_is_there_after_a_kill(nats_server: EmbeddedNats, tmp_path: Path) -> None:
    """A crash right after the acknowledgement loses nothing, and the server comes back where it was."""
    sequence = await _write(nats_server, b"kept")
    url = nats_server.url
    nats_server.kill()
    assert await nats_server.wait() == -signal.SIGKILL
    assert nats_server.pid is None

    await nats_server.stop()
    await nats_server.start()

    assert nats_server.url == url
    assert await _read(nats_server, sequence) == b"kept"


async def test_a_stop_leaves_no_process(nats_server: EmbeddedNats, tmp_path: Path) -> None:
    """Whoever stops it can delete its folder."""
    assert _serving(tmp_path) == [nats_server.pid]
    await nats_server.stop()
    assert _serving(tmp_path) == []


async def test_what_an_earlier_life_left_running_is_ended(tmp_path: Path) -> None:
    """Two servers on one store would destroy it: the one left over ends before another starts."""
    server = EmbeddedNats(tmp_path)
    await server.start()
    sequence = await _write(server, b"kept")
    await server.stop()
    left_over = _started(server_program(), "-c", str(tmp_path / "nats" / "nats.conf"))
    await until(lambda: _serving(tmp_path) == [left_over.pid])

    await server.start()

    assert left_over.wait(timeout=5) is not None
    assert left_over.stdout is not None
    left_over.stdout.close()
    assert _serving(tmp_path) == [server.pid]
    assert await _read(server, sequence) == b"kept"
    await server.stop()


async def test_a_folder_in_use_is_refused_and_its_server_left_alone(nats_server: EmbeddedNats, tmp_path: Path) -> None:
    """A second `muster up` on one data directory must not take the first one's server for a leftover."""
    pid = nats_server.pid
    with pytest.raises(Fault) as refused:
        await EmbeddedNats(tmp_path).start()
    assert refused.value.code == "folder_in_use"
    assert str(os.getpid()) in refused.value.sentence
    assert nats_server.pid == pid


async def test_a_port_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    """The remembered port is a wish: another program that has it now does not keep the cell from starting."""
    server = EmbeddedNats(tmp_path)
    await server.start()
    url = server.url
    await server.stop()
    thief = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", int(url.rpartition(":")[2]))

    await server.start()

    assert server.url != url
    await server.stop()
    thief.close()
    await thief.wait_closed()


async def test_a_wanted_port_that_is_taken_is_a_fault_that_says_so(nats_server: EmbeddedNats, tmp_path: Path) -> None:
    """Who names a port gets that one, or the server's own words why not; and nothing is left running."""
    other = EmbeddedNats(tmp_path / "other", port=int(nats_server.url.rpartition(":")[2]))
    with pytest.raises(Fault) as refused:
        await other.start()
    assert refused.value.code == "nats_not_started"
    assert "address already in use" in refused.value.hint
    assert _serving(tmp_path / "other") == []


async def test_the_monitor_shows_that_every_write_is_synced(tmp_path: Path) -> None:
    """The setting that makes an acknowledgement mean something is really on, and batches are as large as promised."""
    server = EmbeddedNats(tmp_path, monitor=True)
    await server.start()
    assert server.monitor_url is not None
    url = f"{server.monitor_url}/jsz"
    answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())  # noqa: S310 - loopback
    assert b'"sync_always": true' in answer
    await server.stop()


async def test_a_message_of_one_mebibyte_and_the_largest_batch_go_through(nats_connection: Connection) -> None:
    """A placement on a whole cell is one message; the largest decision is one batch."""
    from nats.js.api import StreamConfig

    jetstream = nats_connection.jetstream()
    await jetstream.add_stream(StreamConfig(name="LARGE", subjects=["large"], allow_atomic=True))
    assert nats_connection.max_payload == PAYLOAD_BYTES_MAX
    await jetstream.publish("large", bytes(PAYLOAD_BYTES_MAX))

    for sequence in range(1, BATCH_MAX):
        headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(sequence)}
        if sequence == 1:
            assert (await nats_connection.request("large", b"x", headers=headers)).data == b""
        else:
            await nats_connection.publish("large", b"x", headers=headers)
    headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(BATCH_MAX), "Nats-Batch-Commit": "1"}
    answer = await nats_connection.request("large", b"x", headers=headers, timeout=30)
    assert f'"count":{BATCH_MAX}'.encode() in answer.data


async def test_passwords_are_for_their_owner_only(nats_server: EmbeddedNats, tmp_path: Path) -> None:
    """Both files with passwords in them are closed to others; a restart keeps the passwords."""
    for path in (tmp_path / "credentials.json", tmp_path / "nats" / "nats.conf"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    password = nats_server.login("control").password
    await nats_server.stop()
    await nats_server.start()
    assert nats_server.login("control").password == password
    assert password not in repr(nats_server.login("control"))


PARENT = """
import asyncio, sys
from pathlib import Path
from runtime.children import Child, Command
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.postgres import EmbeddedPostgres
async def main():
    folder = Path(sys.argv[1])
    await EmbeddedNats(folder).start()
    await EmbeddedPostgres(folder).start()
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    Child(Command(argv=(sys.executable, "-I", "-S", "-c", stubborn, str(folder)), log=folder / "stubborn.log"))
    print("up", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    """Kill -9 of `muster up` leaves neither servers nor processes: all are gone within a second."""
    parent = _started(sys.executable, "-I", "-c", PARENT, str(tmp_path))
    assert parent.stdout is not None
    assert await asyncio.to_thread(parent.stdout.readline) == b"up\n"
    title = (tmp_path / "postgres" / "data" / "postmaster.opts").read_text()
    cluster = title.partition("--cluster_name=")[2].partition('"')[0]
    assert cluster

    def left() -> list[int]:
        return [
            pid
            for pid in processes(lambda argv: any(str(tmp_path) in word or cluster in word for word in argv))
            if pid != parent.pid
        ]

    assert len(left()) >= 8  # two servers, PostgreSQL's own processes, and one that ignores TERM
    parent.kill()
    parent.wait()
    parent.stdout.close()
    took_s = await until(lambda: not left(), within_s=2, what=f"still there: {left()}")
    assert took_s < 1.0
