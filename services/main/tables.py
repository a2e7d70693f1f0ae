"""`muster rebuild` and `muster verify`: the tables against the log, and the log against its own laws."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from events.base import START, Position, Recorded, spelled
from events.log.port import LogFault
from events.log.wire import WireReader
from projections.cluster.audit.audit import Finding, audit
from projections.tables.rebuild import rebuild
from projections.tables.verify import Verified, verify
from runtime.fault import Fault
from runtime.logging import configure
from runtime.postgres import Pool, create_pool
from runtime.settings import ReaderSettings
from services.main.local import CLOCK
from services.main.parts import read_here, reading

SHOWN_MAX: Final = 20
STATEMENT_MAX_S: Final = 3600.0


class Opened(NamedTuple):
    """The log and the database of a cluster."""

    reader: WireReader
    pool: Pool


@asynccontextmanager
async def opened(settings: ReaderSettings) -> AsyncIterator[Opened]:
    """The log and the database, until the block is left. Faults of either are raised as `Fault`."""
    try:
        pool = await create_pool(
            settings.postgres_dsn.get_secret_value(), name="verify", size_max=2, statement_max_s=STATEMENT_MAX_S
        )
        try:
            async with reading(settings) as reader:
                yield Opened(reader, pool)
        finally:
            await pool.close()
    except LogFault as fault:
        raise Fault(fault.code, str(fault), fault.hint) from fault


async def read_all(reader: WireReader) -> list[Recorded]:
    """Every record that the log has now."""
    end, records = await reader.end(), list[Recorded]()
    async with aclosing(reader.follow(START)) as following:  # type: ignore[type-var]  # it is a generator
        async for stretch in following:
            records += stretch
            if records and records[-1].position >= end:
                return records
    raise AssertionError("following never ends")


def run_rebuild(data_dir: Path, *, as_json: bool) -> int:
    """The exit code of `muster rebuild`. Raises `Fault`."""
    configure(process="rebuild", level="error")
    settings = read_here(ReaderSettings, data_dir)

    async def work() -> tuple[Position, int]:
        async with opened(settings) as there:
            rebuilt = await rebuild(there.reader, there.pool)
            return rebuilt.position, rebuilt.records

    began_s = CLOCK.monotonic()
    position, records = asyncio.run(work())
    took_s = CLOCK.monotonic() - began_s
    if as_json:
        _out(json.dumps({"position": position, "records": records, "took_s": round(took_s, 3)}))
    else:
        _out(f"tables rebuilt from {records} records, up to position {spelled(position)}, in {took_s:.1f} s")
    return 0


def run_verify(data_dir: Path, *, as_json: bool) -> int:
    """The exit code of `muster verify`: 0 when tables and log are as they should be. Raises `Fault`."""
    configure(process="verify", level="error")
    verified, records, findings = asyncio.run(verified_by(read_here(ReaderSettings, data_dir)))
    if as_json:
        _out(json.dumps(_document(verified, records, findings)))
    else:
        for line in lines_of(verified, records, findings):
            _out(line)
    return 0 if verified.same and not findings else 1


def verdict(data_dir: Path) -> tuple[bool, list[str]]:
    """Whether tables and log of the cluster on `data_dir` are as they should be, and the lines that say so."""
    configure(process="verify", level="error")
    verified, records, findings = asyncio.run(verified_by(read_here(ReaderSettings, data_dir)))
    return verified.same and not findings, lines_of(verified, records, findings)


async def verified_by(settings: ReaderSettings) -> tuple[Verified, int, list[Finding]]:
    """What the comparison of the tables gave, how many records the log has, and what is wrong with them."""
    async with opened(settings) as there:
        verified = await verify(there.reader, there.pool)
        records = await read_all(there.reader)
        return verified, len(records), audit(records)


def lines_of(verified: Verified, records: int, findings: list[Finding]) -> list[str]:
    """The verdict for people."""
    rows = sum(verified.rows.values())
    end = spelled(verified.position)
    lines = [f"tables  same as the log says: {rows} rows in {len(verified.rows)} tables, up to position {end}"]
    if not verified.same:
        counts = ", ".join(f"{table}: {count}" for table, count in verified.differing.items())
        lines = [f"tables  DIFFER from what the log says ({counts}); muster rebuild makes them anew"]
        lines += [
            f"        {one.table} {one.key} in {', '.join(one.columns)}" for one in verified.differences[:SHOWN_MAX]
        ]
    if not findings:
        return [
            *lines,
            f"log     holds: {records} records, no GPU twice, no partial gang, every GPU given back by its run",
        ]
    lines.append(f"log     BROKEN: {len(findings)} findings in {records} records")
    return lines + [f"        at {spelled(one.position)}: {one.law}: {one.message}" for one in findings[:SHOWN_MAX]]


def _document(verified: Verified, records: int, findings: list[Finding]) -> dict[str, Any]:
    return {
        "same": verified.same,
        "position": verified.position,
        "rows": verified.rows,
        "differing": verified.differing,
        "records": records,
        "findings": [one._asdict() for one in findings],
    }


def _out(line: str) -> None:
    sys.stdout.write(line + "\n")
