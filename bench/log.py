"""The log alone, on a server of its own with fsync on every append: `python -m bench.log [--json]`.

Appends one by one, overlapping, and in batches; then follows through both readers. A record is a small fact, some 600
bytes as stored. `cpu` is what this process spends, and what an otherwise idle machine would take for it.
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, cast

from events.base import START, Event, JobId, NodeEpoch, NodeId, Position, RunId, Stretch, TeamId, sequence_of
from events.head import RoundDecided
from events.job import JobAdmitted
from events.log.append import JetStreamLog
from events.log.follow import JetStreamReader, LogReader
from events.log.streams import StreamSettings, found
from events.log.wire import WireReader
from events.node import ShareStarted
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection, connect

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
AT_ONCE: Final = 256
FOLLOWED_LEAST: Final = 100_000

Row = dict[str, Any]


async def main(*, as_json: bool) -> None:
    """The figures are printed."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        server = EmbeddedNats(Path(folder))
        await server.start()
        connection = await connect(server.login("system"), name="bench")
        try:
            await found(connection, StreamSettings())
            rows = [*await appends(connection), *await follows(server, connection)]
        finally:
            await connection.close()
            await server.stop()
    if as_json:
        print(json.dumps({"machine": machine(), "rows": rows}))
        return
    print(machine())
    for row in rows:
        print(
            f"{row['what']:<32}{row['events']:>9}{row['events_per_s']:>10}/s{row['us']:>9} µs{row['cpu_us']:>8} µs cpu"
        )


def machine() -> str:
    """What the figures were taken on, and how busy it was."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, {platform.machine()}"


async def measured(what: str, events: int, work: Callable[[], Awaitable[object]]) -> Row:
    """A row of figures about the work."""
    began, cpu = perf_counter(), process_time()
    await work()
    took_s, cpu_s = perf_counter() - began, process_time() - cpu
    return {
        "what": what,
        "events": events,
        "events_per_s": round(events / took_s),
        "us": round(took_s / events * 1e6, 1),
        "cpu_us": round(cpu_s / events * 1e6, 1),
    }


_numbers = count()


def facts(size: int) -> list[Event]:
    """Reports that no other is like."""
    return [
        ShareStarted(at=NOW, node_id=NodeId(f"node-{n % 1000}"), node_epoch=NodeEpoch(START), run_id=RunId(f"j{n}-1"))
        for n, _ in zip(_numbers, range(size), strict=False)
    ]


async def appends(connection: Connection) -> list[Row]:
    """How fast the log takes facts and decisions."""
    log = JetStreamLog(connection)

    async def singly(times: int) -> None:
        for _ in range(times):
            await log.record(facts(1))

    async def overlapping(times: int) -> None:
        await asyncio.gather(*(singly(times) for _ in range(AT_ONCE)))

    async def batches(size: int, times: int) -> None:
        for _ in range(times):
            await log.record(facts(size))

    async def decisions(size: int, times: int) -> None:
        last = await log.last("head")
        assert last is not None
        head = last.position
        for _ in range(times):
            record = RoundDecided(at=NOW, epoch=head, decided_at=head, events=size)
            others = [JobAdmitted(at=NOW, team=TeamId("t"), job_id=JobId(f"j{n}")) for n in range(size)]
            head = Position(await log.append([record, *others], after=head) - size)

    rows = [
        await measured("single, awaited", 500, partial(singly, 500)),
        await measured(f"single, {AT_ONCE} at once", 2 * AT_ONCE, partial(overlapping, 2)),
    ]
    for size, times in ((10, 50), (100, 30), (1_000, 10), (10_000, 2)):
        rows.append(await measured(f"batches of {size}", size * times, partial(batches, size, times)))
    rows.append(await measured("decisions of 1000", 10_010, partial(decisions, 1_000, 10)))
    return rows


async def follows(server: EmbeddedNats, connection: Connection) -> list[Row]:
    """How fast both readers read from the start."""
    log = JetStreamLog(connection)
    while sequence_of(end := await log.end()) < FOLLOWED_LEAST:
        await log.record(facts(10_000))
    login = server.login("reader")
    wire = WireReader(login.urls, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix)
    total = sequence_of(end)
    rows = []
    for what, reader in (("follow through nats-py", JetStreamReader(connection)), ("follow on its own socket", wire)):
        rows.append(await measured(what, total, partial(follow, reader, end)))
    wire.close()
    return rows


async def follow(reader: LogReader, end: Position) -> None:
    """All has been read and decoded, up to `end`."""
    async with aclosing(cast(AsyncGenerator[Stretch, None], reader.follow(START))) as stretches:
        async for stretch in stretches:
            if stretch and stretch[-1].position >= end:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    asyncio.run(main(as_json=parser.parse_args().json))
