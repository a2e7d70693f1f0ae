"""The embedded PostgreSQL: what it promises at start, at stop, in a crash, and where its data may lie."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from runtime.embedded.postgres import SOCKET_PATH_MAX, EmbeddedPostgres
from runtime.fault import Fault
from tests.fixtures.waiting import until


async def _execute(server: EmbeddedPostgres, *statements: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(server.dsn)
    rows: list[asyncpg.Record] = []
    for statement in statements:
        rows = await connection.fetch(statement)
    await connection.close()
    return rows


def _mode(folder: Path) -> int | None:
    """Who may do what with a folder; None if there is none."""
    return folder.stat().st_mode & 0o777 if folder.exists() else None


def _make_for_a_stranger(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 12_345, 12_345)


def _fork_and_exit() -> None:
    """As a library does that forks a worker: the copy ends in the usual way, with all that is registered for it."""
    code = (
        "import os, sys; from runtime.embedded import postgres; pid = os.fork(); pid and os.waitpid(pid, 0); sys.exit()"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


async def test_it_survives_kills_and_whatever_they_leave(tmp_path: Path) -> None:
    """What was committed is there after each kind of crash, and no start trips over the remains of the last life."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    await _execute(server, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")

    server.kill()  # the first process; the others notice
    await server.stop()
    assert server.remains() == []
    await server.start()
    await _execute(server, "INSERT INTO kept VALUES (2)")

    for pid in server.remains():  # all at once
        os.kill(pid, signal.SIGKILL)
    await server.stop()
    state = tmp_path / "postgres" / "data" / "postmaster.pid"
    assert state.exists()
    # Its number belongs to a living process by now, as happens in containers, where numbers are few.
    for stale in (state, *tmp_path.rglob(".s.PGSQL.5432.lock")):  # noqa: ASYNC240 - a folder of ours, nothing waits
        stale.write_text(f"{os.getppid()}\n" + stale.read_text().partition("\n")[2])
    await server.start()
    assert [row["n"] for row in await _execute(server, "SELECT n FROM kept ORDER BY n")] == [1, 2]

    await server.stop()
    assert server.remains() == []


async def test_what_an_earlier_life_left_running_is_ended(tmp_path: Path) -> None:
    """A server that outlived its parent is stopped in order before another starts on the same data."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    await _execute(server, "CREATE TABLE kept (n int)")
    left_over = server._child
    assert left_over is not None
    # Forget about it, as a new process would not know it; its lock went with the process.
    server._child = None
    server._lock.give_back()

    await server.start()

    assert left_over.exit_code == 0
    assert await _execute(server, "SELECT n FROM kept") == []
    await server.stop()


async def test_a_stop_cuts_off_clients_and_leaves_no_process(tmp_path: Path) -> None:
    """A client that stays connected does not delay it."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    connection = await asyncpg.connect(server.dsn)
    await server.stop()
    assert server.remains() == []
    connection.terminate()


async def test_a_folder_in_use_is_refused_and_its_server_left_alone(tmp_path: Path) -> None:
    """A second `muster up` on one data directory must not stop the first one's server."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    with pytest.raises(Fault) as refused:
        await EmbeddedPostgres(tmp_path).start()
    assert refused.value.code == "folder_in_use"
    assert await _execute(server, "SELECT 1") != []
    await server.stop()


async def test_an_init_cut_short_is_done_again(tmp_path: Path) -> None:
    """Half a data directory, from a crash at the very first start, is not taken for a whole one."""
    unfinished = tmp_path / "postgres" / "data.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    assert await _execute(server, "SELECT 1") != []
    assert not unfinished.exists()
    await server.stop()


async def test_a_long_path_and_a_closed_folder_above_are_no_obstacle(tmp_path: Path) -> None:
    """The socket moves to where its path fits, and folders closed to others stay closed."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    folder = closed / ("long-" * 20)
    server = EmbeddedPostgres(folder, durable=False)
    await server.start()
    sockets = Path(server.dsn.partition("host=")[2])
    assert len(str(sockets / ".s.PGSQL.5432")) <= SOCKET_PATH_MAX < len(str(folder))
    assert _mode(sockets) == 0o700
    assert await _execute(server, "SELECT 1") != []
    await server.stop()
    assert _mode(sockets) is None
    assert _mode(closed) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_a_socket_folder_of_a_stranger_is_refused(tmp_path: Path) -> None:
    """In /tmp anybody may have made it first, and would then read what we send."""
    server = EmbeddedPostgres(tmp_path / ("long-" * 25), durable=False)
    sockets = Path(server.dsn.partition("host=")[2])
    _make_for_a_stranger(sockets)
    with pytest.raises(Fault) as refused:
        await server.start()
    assert refused.value.code == "folder_not_ours"
    assert _mode(sockets) is not None  # it is not ours to remove
    shutil.rmtree(sockets)


async def test_two_servers_run_at_once_and_stop_apart(tmp_path: Path) -> None:
    """Two clones on one machine know nothing of each other, with all that durability needs switched on."""
    one, other = EmbeddedPostgres(tmp_path / "one", durable=False), EmbeddedPostgres(tmp_path / "other")
    await one.start()
    await other.start()
    await one.stop()
    settings = await _execute(
        other, "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit')"
    )
    assert [row["setting"] for row in settings] == ["on", "on"]
    await other.stop()


async def test_a_child_that_forks_off_takes_nothing_down(tmp_path: Path) -> None:
    """A forked copy of the parent that exits leaves the server alone."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    _fork_and_exit()
    assert await _execute(server, "SELECT 1") != []
    await until(lambda: len(server.remains()) >= 6)
    await server.stop()


async def test_each_test_has_a_database_of_its_own(postgres_server: EmbeddedPostgres, postgres_dsn: str) -> None:
    """Tests that write do not see each other."""
    connection = await asyncpg.connect(postgres_dsn)
    assert (await connection.fetchval("SELECT current_database()")).startswith("test_")
    await connection.close()
