"""`muster backup` and `muster restore`: the log as its servers keep it, the tables of one moment, and a list of both."""

import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from events.base import START, Position, chapter_of, position_of, spelled
from events.subjects import LOGS_STREAM
from projections.tables import copies, projection_position
from projections.tables.schema import FOLD_VERSION, LIVE
from runtime.children import FolderLock
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.fault import Fault
from runtime.files import durable
from runtime.logging import configure
from runtime.nats import Connection, Login, connect
from runtime.postgres import Connection as Session
from runtime.postgres import create_pool
from runtime.settings import CopySettings
from runtime.stream_copy import Saved, names, restored, saving
from services.main.found import migrate
from services.main.local import CLOCK
from services.main.parts import names_servers, read, read_here
from services.main.renewed import remembered, renewed
from services.main.unfinished import EVENTS_PREFIX, clear_away, finish, unfinished
from services.webhooks.schema import SCHEMA as WEBHOOKS

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SCHEMAS: Final = (LIVE, WEBHOOKS)
STATEMENT_MAX_S: Final = 24 * 3600.0
READ_BYTES: Final = 1 << 20

TablesStep = Callable[[Session, str, Sequence[Path]], Awaitable[object]]


class StreamFile(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of the copy."""

    name: str
    config: dict[str, Any]
    state: dict[str, Any]
    size_bytes: int
    sha256: str

    @property
    def saved(self) -> Saved:
        """As it is given back to a server."""
        return Saved(self.config, self.state)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy holds, and what it is a copy of."""

    format: int
    at: datetime
    version: str  # of the program
    cell: str
    streams: list[StreamFile]
    tables: dict[str, dict[str, int]]  # schema -> table -> rows; empty: none were copied
    tables_at: Position = START
    fold: int = FOLD_VERSION  # version of the rows

    @property
    def end(self) -> Position:
        """The last position of the log."""
        last = max((one for one in self.streams if one.name.startswith(EVENTS_PREFIX)), key=lambda one: one.name)
        return position_of(int(last.name.removeprefix(EVENTS_PREFIX)), last.saved.last)


def run_backup(folder: Path, data_dir: Path, *, logs: bool) -> int:
    """The exit code of `muster backup`: the copy is in `folder`, whole. Raises `Fault`."""
    configure(process="backup", level="error")
    if folder.exists() and any(folder.iterdir()):
        raise Fault("folder_not_empty", f"{folder} is not empty.", "Name a folder that is not there yet.")
    began_s = CLOCK.monotonic()
    draft = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        manifest = asyncio.run(copied(draft, read_here(CopySettings, data_dir), logs=logs))
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)  # it would keep the disk full
        hint = "Nothing is left of the copy. Make room, or name a folder on another disk."
        raise Fault("copy_not_written", f"The copy could not be written: {error.strerror or error}.", hint) from error
    if folder.exists():
        folder.rmdir()
    draft.rename(folder)
    for line in lines_of(manifest, folder):
        say(line)
    say(f"took    {CLOCK.monotonic() - began_s:.1f} s")
    return 0


async def copied(folder: Path, settings: CopySettings, *, logs: bool) -> Manifest:
    """What the copy in `folder`, which is there and empty, holds. Raises `Fault`.

    Tables first: so the log never ends before what they show.
    """
    tables, tables_at = await _save_tables(settings, folder)
    connection = await connect(settings.login, name="backup")
    try:
        wanted = await names(connection, EVENTS_PREFIX) + ([LOGS_STREAM] if logs else [])
        if not wanted:
            raise Fault("no_log", "There is no log on these servers.", "Is it the right cluster?")
        streams = [await _save_stream(connection, name, folder) for name in wanted]
    finally:
        await connection.close()
    manifest = Manifest(
        format=FORMAT,
        at=CLOCK.now(),
        version=version("musterbook"),
        cell=settings.cell,
        streams=streams,
        tables=tables,
        tables_at=tables_at,
    )
    with durable(folder / MANIFEST) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest


async def _save_tables(settings: CopySettings, folder: Path) -> tuple[dict[str, dict[str, int]], Position]:
    dsn = settings.postgres_dsn.get_secret_value()
    if not dsn:
        return {}, START
    pool = await create_pool(dsn, name="backup", size_max=1, statement_max_s=STATEMENT_MAX_S)
    try:
        async with pool.acquire() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            reached = await projection_position.shown(conn)
            rows = {schema: await copies.saved(conn, schema, _made(folder / schema)) for schema in SCHEMAS}
            return rows, reached.position
    finally:
        pool.terminate()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def _save_stream(connection: Connection, name: str, folder: Path) -> StreamFile:
    digest, size = hashlib.sha256(), 0
    async with saving(connection, name) as (saved, pieces):
        with durable(_file_of(folder, name)) as file:
            async for piece in pieces:
                digest.update(piece)
                size += len(piece)
                file.write(piece)
    return StreamFile(name=name, config=saved.config, state=saved.state, size_bytes=size, sha256=digest.hexdigest())


def _file_of(folder: Path, stream: str) -> Path:
    return folder / f"{stream}.stream"


class Into(NamedTuple):
    """Servers that a copy is put into."""

    login: Login
    dsn: str  # empty: no PostgreSQL
    beyond: int = 0  # the newest chapter that anyone has seen of a log that was there


def run_restore(folder: Path, data_dir: Path, *, tables: bool, beyond: int) -> int:
    """The exit code of `muster restore`: servers hold what the copy has, and the log goes on from there. Raises `Fault`."""
    configure(process="restore", level="error")
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    began_s = CLOCK.monotonic()
    goes_on = asyncio.run(_restore(folder, manifest, data_dir, tables=tables, beyond=beyond))
    for line in lines_of(manifest, folder):
        say(line)
    say(
        f"goes on at {spelled(goes_on)}, in a chapter of its own: what came after the copy is never taken for what comes now"
    )
    if not tables:
        say("tables  were left as they are; if they show more than the log has: muster rebuild")
    say(f"took    {CLOCK.monotonic() - began_s:.1f} s")
    return 0


def read_manifest(folder: Path) -> Manifest:
    """What the copy in `folder` holds. Raises `Fault`."""
    hint = "Name the folder that muster backup wrote."
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise Fault("no_backup", f"{folder} holds no copy: {error.strerror}.", hint) from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Fault("backup_damaged", f"{folder / MANIFEST} cannot be read: {error}.", hint) from error
    if manifest.format != FORMAT:
        raise Fault("backup_unknown", f"{folder} is of format {manifest.format}, not {FORMAT}.", "Use its version.")
    return manifest


def check_files(folder: Path, manifest: Manifest) -> None:
    """The copy is whole. Raises `Fault`."""
    for stream in manifest.streams:
        digest = hashlib.sha256()
        try:
            with _file_of(folder, stream.name).open("rb") as file:
                while piece := file.read(READ_BYTES):
                    digest.update(piece)
        except OSError as error:
            raise Fault(
                "backup_damaged", f"{stream.name} is missing: {error.strerror}.", "Take another copy."
            ) from error
        if digest.hexdigest() != stream.sha256:
            raise Fault("backup_damaged", f"{stream.name} is not what was copied.", "Take another copy.")


async def _restore(folder: Path, manifest: Manifest, data_dir: Path, *, tables: bool, beyond: int) -> Position:
    async with _servers(data_dir) as into:
        wanted = into._replace(beyond=max(into.beyond, beyond))
        return await put_back(folder, manifest, wanted, tables=tables)


async def put_back(folder: Path, manifest: Manifest, into: Into, *, tables: bool) -> Position:
    """Where the log goes on, now that the servers hold what the copy does. Raises `Fault`."""
    connection = await connect(into.login, name="restore")
    try:
        await clear_away(connection, [stream.name for stream in manifest.streams])
        if there := await names(connection, EVENTS_PREFIX):
            hint = "Restore into empty servers: a copy never replaces a log."
            raise Fault("log_exists", f"There is a log already: {', '.join(there)}.", hint)
        shown = await _tables_at(into.dsn) if into.dsn else START
        put_tables = bool(into.dsn and tables and manifest.tables)
        if put_tables:  # before anything is there, for these may be of another version
            await _restore_tables(folder, manifest, into.dsn, copies.assert_fit)
        for stream in manifest.streams:  # the first chapter is first
            await restored(connection, unfinished(stream.saved, manifest.cell), _pieces(_file_of(folder, stream.name)))
        if put_tables:
            await _restore_tables(folder, manifest, into.dsn, copies.restored)
        await finish(connection)
        return await renewed(into.login, manifest.cell, beyond=max(into.beyond, chapter_of(shown)))
    finally:
        await connection.close()


async def _restore_tables(folder: Path, manifest: Manifest, dsn: str, step: TablesStep) -> None:
    """The step was taken for each schema, over tables of this version. Raises `Fault`."""
    await migrate(dsn)
    pool = await create_pool(dsn, name="restore", size_max=1, statement_max_s=STATEMENT_MAX_S)
    try:
        async with pool.acquire() as conn:
            for schema in manifest.tables:
                await step(conn, schema, _copies_in(folder / schema))
    finally:
        pool.terminate()


def _copies_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.copy"))


async def _tables_at(dsn: str) -> Position:
    pool = await create_pool(dsn, name="restore", size_max=1)
    try:
        return (await projection_position.shown(pool)).position
    finally:
        pool.terminate()


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(READ_BYTES):
            yield piece


@asynccontextmanager
async def _servers(data_dir: Path) -> AsyncIterator[Into]:
    """The servers that the environment names, or those of `data_dir`, which run meanwhile."""
    given = read(CopySettings)
    if names_servers(given):
        yield Into(given.login, given.postgres_dsn.get_secret_value())
        return
    lock = FolderLock(data_dir)
    lock.take()
    nats, postgres = EmbeddedNats(data_dir), EmbeddedPostgres(data_dir)
    nats.hasten()
    try:
        await nats.start()
        await postgres.start()
        yield Into(nats.login("system"), postgres.dsn, remembered(data_dir))
    finally:
        await postgres.stop()
        await nats.stop()
        os.sync()  # NATS alone would have taken a thousand times as long, message by message
        lock.give_back()


def lines_of(manifest: Manifest, folder: Path) -> Iterator[str]:
    """What a copy holds, for people."""
    log = [stream for stream in manifest.streams if stream.name.startswith(EVENTS_PREFIX)]
    records = sum(stream.saved.last for stream in log)
    size = sum(stream.size_bytes for stream in manifest.streams) / 1e6
    chapters = f"{len(log)} chapter{'s' if len(log) > 1 else ''}"
    yield f"log     {records} records in {chapters}, up to {spelled(manifest.end)}; {size:.1f} MB in {folder}"
    rows = sum(sum(tables.values()) for tables in manifest.tables.values())
    if manifest.tables:
        yield f"tables  {rows} rows, of the moment when they showed {spelled(manifest.tables_at)}"
    else:
        yield "tables  none: PostgreSQL was not named; muster rebuild makes them from the log, but for webhooks"


def say(line: str) -> None:
    """The line is on stdout."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
