"""A cell for measuring: real servers and real control plane processes; nodes and users are this process, through a gate."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from events.base import GpuUuid, NodeEpoch, NodeId, Position
from events.log.append import JetStreamLog
from events.log.streams import StreamSettings
from events.log.wire import WireReader
from events.node import GpusFoundClean, NodeJoined
from events.policy import PolicySet
from runtime.clock import SystemClock
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.logging import configure
from runtime.nats import Connection, connect
from runtime.postgres import create_pool
from services.gate.gate import Gate, open_gate
from services.main.found import found_log, migrate

CLOCK: Final = SystemClock()
GPUS_PER_NODE: Final = 8
TEAM: Final = "bench"


class Cell(NamedTuple):
    """A running cell."""

    gate: Gate
    log: JetStreamLog
    nats: EmbeddedNats
    postgres: EmbeddedPostgres
    children: list[subprocess.Popen[bytes]]


@asynccontextmanager
async def open_cell(*parts: tuple[str, ...]) -> AsyncIterator[Cell]:
    """A fresh cell with a process for each of `parts`: ("control", "dispatcher"), ("projector",)."""
    configure(process="bench", level="warning")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        nats, postgres = EmbeddedNats(folder), EmbeddedPostgres(folder)
        stack.push_async_callback(postgres.stop)
        stack.push_async_callback(nats.stop)
        await nats.start()
        await postgres.start()
        await found_log(nats.login("system"), StreamSettings())
        await migrate(postgres.dsn)
        children = [_start(names, folder, nats, postgres) for names in parts]
        stack.callback(_end, children)
        connection: Connection = await connect(nats.login("gate"), name="bench")
        stack.push_async_callback(connection.close)
        login = nats.login("gate")
        reader = WireReader(login.urls, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix)
        stack.callback(reader.close)
        log = JetStreamLog(connection, source="bench", reader=reader)
        gate = await stack.enter_async_context(open_gate(log, CLOCK, waiting_max=100_000))
        yield Cell(gate, log, nats, postgres, children)


def _start(
    names: tuple[str, ...], folder: Path, nats: EmbeddedNats, postgres: EmbeddedPostgres
) -> subprocess.Popen[bytes]:
    login = nats.login("control" if "control" in names else "gate" if "gate" in names else "reader")
    env = {
        **os.environ,
        "MUSTER_POSTGRES_DSN": postgres.dsn,
        "MUSTER_DATA_DIR": str(folder),
        "MUSTER_NATS_URLS": ",".join(login.urls),
        "MUSTER_NATS_USER": login.user,
        "MUSTER_NATS_PASSWORD": login.password,
        "MUSTER_LOG_LEVEL": "warning",
    }
    return subprocess.Popen([sys.executable, "-I", "-m", "services.cli", "serve", *names], env=env)


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()
    for child in children:
        child.wait()


async def join_nodes(log: JetStreamLog, nodes: int) -> dict[NodeId, NodeEpoch]:
    """`nodes` nodes with clean GPUs are in the log, under a policy that never misses them."""
    await log.record([PolicySet(at=CLOCK.now(), suspect_after_s=86_400.0, lost_after_s=90_000.0)])
    names = [NodeId(f"n{number:05d}") for number in range(nodes)]
    uuids = {name: tuple(GpuUuid(f"{name}-{slot}") for slot in range(GPUS_PER_NODE)) for name in names}
    epochs: dict[NodeId, NodeEpoch] = {}
    for first in range(0, nodes, 1_000):
        part = names[first : first + 1_000]
        last = await log.record([_joined(name, uuids[name]) for name in part])
        epochs |= {name: NodeEpoch(last - len(part) + 1 + index) for index, name in enumerate(part)}
        await log.record(
            [
                GpusFoundClean(at=CLOCK.now(), node_id=name, node_epoch=epochs[name], gpu_uuids=uuids[name])
                for name in part
            ]
        )
    return epochs


def _joined(name: NodeId, uuids: tuple[GpuUuid, ...]) -> NodeJoined:
    return NodeJoined(
        at=CLOCK.now(),
        node_id=name,
        boot_id="bench",
        instance="bench",
        gpu_type="h100",
        gpu_uuids=uuids,
        address="127.0.0.1",
        port_base=20_000,
    )


async def tables_at(cell: Cell, position: Position) -> None:
    """The tables show `position`."""
    pool = await create_pool(cell.postgres.dsn, name="bench", size_max=1)
    try:
        while True:
            if (await pool.fetchval(SHOWN) or 0) >= position:
                return
            await asyncio.sleep(0.02)
    finally:
        pool.terminate()


SHOWN: Final = "SELECT max(position) FROM live.projection_position"
