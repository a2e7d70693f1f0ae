"""Dispatchers of two versions: none overwrites what is newer than what it knows, nor tells what it only half knows."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import pytest

from events.base import GpuUuid, NodeEpoch, NodeId
from events.desired import Desired, decode_desired
from events.fleet import NodeLost
from events.head import LeadershipTaken
from events.log.append import JetStreamLog
from events.log.streams import StreamSettings, found
from events.node import NodeJoined
from events.subjects import DESIRED_STREAM, Subjects
from runtime.embedded.nats import EmbeddedNats
from runtime.last_values import LastValues
from runtime.nats import Connection
from runtime.stopping import Stop
from services.dispatcher.service import Dispatcher
from services.main.parts import dispatcher
from tests.clusters import World
from tests.services.control.cells import CLOCK

N1: Final = NodeId("n1")
SUBJECT: Final = Subjects().desired(N1)


@pytest.mark.parametrize(("ahead", "kept"), [(5, True), (-1, False)])
async def test_only_what_is_older_is_overwritten(nats_connection: Connection, ahead: int, *, kept: bool) -> None:
    """A value of a newer version, which cannot be read: as of a later position it stays."""
    await found(nats_connection, StreamSettings())
    values = LastValues(nats_connection, DESIRED_STREAM)
    world = World({"n1": 2})
    told: dict[str, Any] = {"node_id": N1, "as_of": world.cluster.position + ahead, "epoch": {"of": "another make"}}
    newer = json.dumps(told).encode()
    assert await values.put(SUBJECT, newer, after=0)
    writing = Dispatcher(values, Subjects(), lambda: True)
    writing.watch(world.cluster, tuple(world.records))
    task = asyncio.create_task(writing.run())
    try:
        if kept:
            await asyncio.sleep(0.5)
            assert (await values.get(SUBJECT)).payload == newer
        else:
            await comes(lambda: readable(values))
            assert (await desired(values)).as_of == world.cluster.position
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_one_that_cannot_read_a_decision_tells_nothing_after_it(
    nats_server: EmbeddedNats, nats_connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs by itself, of an older version than who leads: what it would tell may be the end of runs."""
    login = nats_server.login("control")
    monkeypatch.setenv("MUSTER_NATS_URLS", nats_server.url)
    monkeypatch.setenv("MUSTER_NATS_PASSWORD", login.password)
    await found(nats_connection, StreamSettings())
    log, values, stop = JetStreamLog(nats_connection), LastValues(nats_connection, DESIRED_STREAM), Stop()
    task = asyncio.create_task(dispatcher(stop))
    try:
        epoch = NodeEpoch(await log.record([joined()]))
        await comes(lambda: told(values, epoch, lost=False))
        await lose(log, epoch)
        await comes(lambda: told(values, epoch, lost=True))

        again = NodeEpoch(await log.record([joined()]))
        await comes(lambda: told(values, again, lost=False))
        newer = b'{"specversion":"1.0","type":"musterbook.node.teleported.v1","id":"1"}'
        await nats_connection.jetstream().publish("muster.main.ev.fleet.n1", newer)
        await lose(log, again)
        await asyncio.sleep(1.0)
        assert await told(values, again, lost=False)
        assert not task.done()
    finally:
        stop.request("done")
        await task


def joined() -> NodeJoined:
    """A life of the node."""
    return NodeJoined(
        at=CLOCK.now(), node_id=N1, boot_id="b", instance="i", gpu_type="h100", gpu_uuids=(GpuUuid("g"),),
        address="127.0.0.1", port_base=20_000,
    )  # fmt: skip


async def lose(log: JetStreamLog, epoch: NodeEpoch) -> None:
    """The life was declared lost."""
    head = await log.last("head")
    assert head is not None
    leads = LeadershipTaken(at=CLOCK.now(), instance="newer", version="2")
    lost = NodeLost(at=CLOCK.now(), node_id=N1, node_epoch=epoch, silent_s=9.0)
    await log.append([leads, lost], after=head.position)


async def comes(so: Callable[[], Awaitable[bool]]) -> None:
    """It is so within a while."""
    async with asyncio.timeout(10):
        while not await so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def told(values: LastValues, epoch: NodeEpoch, *, lost: bool) -> bool:
    """Whether that life of the node is what is desired of it, and whether as a lost one."""
    if not await readable(values):
        return False
    now = await desired(values)
    return (now.epoch, now.lost) == (epoch, lost)


async def desired(values: LastValues) -> Desired:
    """What is desired of the node."""
    return decode_desired((await values.get(SUBJECT)).payload)


async def readable(values: LastValues) -> bool:
    """Whether that can be read."""
    try:
        await desired(values)
    except msgspec.DecodeError:
        return False
    return True
