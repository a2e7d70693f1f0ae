"""Copies of a whole cell, put into other servers: nothing is lost, nothing old is met again, nothing damaged is taken."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from resource import RLIMIT_FSIZE, setrlimit
from unittest.mock import ANY

import msgspec
import pytest
from pydantic import SecretStr

from events.base import Recorded, chapter_of, position_of
from events.chain import Chain, extended
from events.chapter import ChapterClosed, ChapterOpened
from events.log.append import JetStreamLog
from events.log.port import Conflict, Roll, Unfit
from events.log.streams import Founded, StreamSettings, check
from events.log.wire import WireReader
from projections.cluster.audit.audit import audit
from projections.tables.projector import Progress, project
from projections.tables.verify import verify
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.fault import Fault
from runtime.nats import connect
from runtime.postgres import create_pool
from runtime.settings import CopySettings
from services.control.chapters import Kept
from services.main.backup import Into, Manifest, check_files, copied, lines_of, put_back, read_manifest
from services.main.found import found_log, migrate
from services.main.renewed import BY, remembered
from services.main.tables import read_all
from tests.events.log.rigs import started, submitted


class Cell:
    """Servers with a log and tables, or empty ones."""

    def __init__(self, nats: EmbeddedNats, dsn: str) -> None:
        self.nats = nats
        self.dsn = dsn

    @property
    def settings(self) -> CopySettings:
        """As the environment would name them."""
        login = self.nats.login("system")
        return CopySettings(
            nats_urls=login.urls, nats_password=SecretStr(login.password), postgres_dsn=SecretStr(self.dsn)
        )

    @asynccontextmanager
    async def log(self) -> AsyncIterator[JetStreamLog]:
        """The log, to be written."""
        connection = await connect(self.nats.login("system"), name="test")
        try:
            yield JetStreamLog(connection)
        finally:
            await connection.close()

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[WireReader]:
        """The log, to be read."""
        login = self.nats.login("reader")
        reader = WireReader(login.urls, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix)
        try:
            yield reader
        finally:
            reader.close()


@pytest.fixture
async def cell(nats_server: EmbeddedNats, postgres_dsn: str) -> Cell:
    """A founded log with some facts, and tables that show them."""
    await found_log(nats_server.login("system"), StreamSettings(logs_bytes=1 << 20))
    await migrate(postgres_dsn)
    cell = Cell(nats_server, postgres_dsn)
    async with cell.log() as log:
        await log.record([submitted(f"j{n:013d}") for n in range(30)])
    await shown(cell)
    return cell


@pytest.fixture
async def empty(tmp_path: Path, postgres_server: EmbeddedPostgres) -> AsyncIterator[Cell]:
    """Servers on which nothing is yet."""
    nats = EmbeddedNats(tmp_path / "empty")
    nats.hasten()
    await nats.start()
    await postgres_server.create_database("empty")
    yield Cell(nats, postgres_server.dsn_of("empty"))
    await nats.stop()
    await postgres_server.drop_database("empty")


async def shown(cell: Cell) -> None:
    """The tables show all that the log has. Raises what ends their projector."""
    pool = await create_pool(cell.dsn, name="test", size_max=4)
    try:
        async with cell.reader() as reader, cell.log() as log:
            end, progress = await log.end(), Progress()
            task = asyncio.create_task(project(reader, pool, progress))
            while not task.done() and progress.position < end:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    finally:
        pool.terminate()


async def written(cell: Cell, folder: Path) -> Manifest:
    """A copy of the cell is in the folder."""
    await asyncio.to_thread(folder.mkdir)
    await copied(folder, cell.settings, logs=False)
    return read_manifest(folder)


async def records_of(cell: Cell) -> list[Recorded]:
    """The whole log."""
    async with cell.reader() as reader:
        return await read_all(reader)


async def test_a_copy_in_other_servers_is_the_log_and_the_tables(cell: Cell, empty: Cell, tmp_path: Path) -> None:
    """Positions, times and bytes; it goes on in a chapter of its own, and a key that was taken stays taken."""
    before = await records_of(cell)
    manifest = await written(cell, tmp_path / "copy")
    async with cell.log() as log:
        lost = await log.record([started("after-the-copy")])

    goes_on = await put_back(tmp_path / "copy", manifest, Into(empty.nats.login("system"), empty.dsn), tables=True)

    after = await records_of(empty)
    assert after[: len(before)] == before
    assert [type(recorded.event) for recorded in after[len(before) :]] == [ChapterClosed, ChapterOpened]
    assert after[-1].event.by == BY
    assert goes_on == after[-1].position > lost
    assert audit(after) == []
    async with empty.log() as log:
        with pytest.raises(Conflict):
            await log.record([submitted("j0000000000007")])
    await shown(empty)
    pool = await create_pool(empty.dsn, name="test", size_max=2)
    async with empty.reader() as reader:
        assert (await verify(reader, pool)).same
    pool.terminate()


@pytest.mark.parametrize("more", [1, 9])
async def test_tables_that_show_more_than_a_restored_log_are_noticed(
    cell: Cell, empty: Cell, tmp_path: Path, more: int
) -> None:
    """Where PostgreSQL outlived the loss of the log: its tables stand still, and say so.

    Also where the log has a record at their position: another one.
    """
    manifest = await written(cell, tmp_path / "copy")
    async with cell.log() as log:
        await log.record([submitted(f"j9{n:012d}") for n in range(more)])
    await shown(cell)
    survivor = Cell(empty.nats, cell.dsn)

    await put_back(tmp_path / "copy", manifest, Into(empty.nats.login("system"), cell.dsn), tables=False)

    with pytest.raises(Fault) as noticed:
        await shown(survivor)
    assert noticed.value.code == "tables_ahead"


async def test_a_log_is_never_replaced(cell: Cell, tmp_path: Path) -> None:
    """Also not by a copy of itself."""
    manifest = await written(cell, tmp_path / "copy")
    before = await records_of(cell)

    with pytest.raises(Fault) as refused:
        await put_back(tmp_path / "copy", manifest, Into(cell.nats.login("system"), cell.dsn), tables=True)

    assert refused.value.code == "log_exists"
    assert await records_of(cell) == before


async def test_a_copy_that_is_damaged_is_refused_before_anything_is_written(cell: Cell, tmp_path: Path) -> None:
    """A byte, a missing file, a list that cannot be read, one of a later format."""
    folder = tmp_path / "copy"
    manifest = await written(cell, folder)
    check_files(folder, manifest)
    file = folder / "EVENTS_0001.stream"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        file.write_bytes(damaged)
        with pytest.raises(Fault, match="EVENTS_0001"):
            check_files(folder, manifest)
    file.unlink()
    with pytest.raises(Fault, match="EVENTS_0001"):
        check_files(folder, manifest)
    for text in (b"{", msgspec.json.encode(msgspec.structs.replace(manifest, format=9))):
        (folder / "manifest.json").write_bytes(text)
        with pytest.raises(Fault):
            read_manifest(folder)
    with pytest.raises(Fault) as missing:
        read_manifest(tmp_path)
    assert missing.value.code == "no_backup"


async def test_what_a_copy_holds_is_told(cell: Cell, tmp_path: Path) -> None:
    """In two lines: how far the log goes, and which moment the tables are of."""
    manifest = await written(cell, tmp_path / "copy")
    log, tables = lines_of(manifest, tmp_path / "copy")
    assert log.startswith("log     31 records in 1 chapter, up to 1:31; ")
    assert "of the moment when they showed 1:31" in tables
    assert manifest.tables["live"]["job_view"] == 30
    assert manifest.tables_at == manifest.end


async def test_a_restore_that_stopped_in_the_middle_left_no_log_and_is_done_again(
    cell: Cell, empty: Cell, tmp_path: Path
) -> None:
    """Also where a chapter was whole: nobody founds, reads or writes what is there in part; the next try begins anew."""
    async with cell.log() as log:
        chain = extended(Chain(), tuple(await records_of(cell)))
        await log.roll(chain, Roll(log_id="x", at=chain.at))
        await log.record([submitted(f"j8{n:012d}") for n in range(3000)])
    before, manifest = await records_of(cell), await written(cell, tmp_path / "copy")
    last = tmp_path / "copy" / "EVENTS_0002.stream"
    whole = last.read_bytes()
    login = empty.nats.login("system")
    last.write_bytes(whole[: len(whole) // 2])  # the server has taken a part of it when it notices
    with pytest.raises(Fault):
        await put_back(tmp_path / "copy", manifest, Into(login, empty.dsn), tables=True)
    for again in (found_log(login, StreamSettings(logs_bytes=1 << 20)), founded(empty)):
        with pytest.raises((Fault, Unfit), match="in part"):
            await again
    last.write_bytes(whole)

    goes_on = await put_back(tmp_path / "copy", manifest, Into(login, empty.dsn), tables=True)

    after = await records_of(empty)
    assert after[: len(before)] == before
    assert [type(recorded.event) for recorded in after[len(before) :]] == [ChapterClosed, ChapterOpened]
    assert chapter_of(goes_on) == 3
    assert (await founded(empty)).end == goes_on


async def test_a_copy_onto_a_full_disk_leaves_nothing_of_itself(cell: Cell, tmp_path: Path) -> None:
    """It says so in a sentence, and the next one into the same folder is whole."""
    login = cell.nats.login("system")
    named = {
        "MUSTER_NATS_URLS": login.urls[0],
        "MUSTER_NATS_PASSWORD": login.password,
        "MUSTER_POSTGRES_DSN": cell.dsn,
    }

    async def backed_up(most_bytes: int) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-B", "-I", "-m", "services.cli", "backup", str(tmp_path / "copy"),
            env=dict(os.environ) | named, stdout=PIPE, stderr=STDOUT,
            preexec_fn=lambda: setrlimit(RLIMIT_FSIZE, (most_bytes, most_bytes)),
        )  # fmt: skip
        said, _ = await process.communicate()
        return process.returncode, said.decode()

    code, said = await backed_up(2_000)
    assert code == 1
    assert "could not be written" in said
    assert "Traceback" not in said
    assert not list(tmp_path.glob("copy*"))  # noqa: ASYNC240 - a folder of ours, nothing waits
    assert await backed_up(1 << 30) == (0, ANY)
    check_files(tmp_path / "copy", read_manifest(tmp_path / "copy"))


@pytest.mark.parametrize("by", ["node", "control", "tables", "operator"])
async def test_a_restored_log_goes_on_behind_every_chapter_that_was_seen(
    cell: Cell, empty: Cell, tmp_path: Path, by: str
) -> None:
    """The log that was lost was rolled after the copy: what was seen of it is never met again, whoever saw it."""
    manifest = await written(cell, tmp_path / "copy")
    data_dir, seen = tmp_path / "data", position_of(4, 60)
    (data_dir / "nodes" / "node-1").mkdir(parents=True)
    (data_dir / "control").mkdir()
    into, beyond = Into(empty.nats.login("system"), empty.dsn), 0
    match by:
        case "node":
            (data_dir / "nodes" / "node-1" / "as_of").write_bytes(b"%020d" % seen)
        case "control":
            (data_dir / "control" / "log.chain").write_bytes(msgspec.msgpack.encode(Kept("x", Chain(position=seen))))
        case "tables":
            await migrate(empty.dsn)
            pool = await create_pool(empty.dsn, name="test", size_max=1)
            await pool.execute("INSERT INTO live.projection_position (log_id, position, at, fold) "
                               "VALUES ('x', $1, now(), 1)", seen)  # fmt: skip
            pool.terminate()
        case _:
            beyond = chapter_of(seen)

    wanted = into._replace(beyond=max(remembered(data_dir), beyond))
    goes_on = await put_back(tmp_path / "copy", manifest, wanted, tables=True)

    assert chapter_of(goes_on) == 5
    assert audit(await records_of(empty)) == []


async def founded(cell: Cell) -> Founded:
    """What a part of the cell sees of the log at its start."""
    connection = await connect(cell.nats.login("gate"), name="test")
    try:
        return await check(connection, StreamSettings(logs_bytes=1 << 20))
    finally:
        await connection.close()
