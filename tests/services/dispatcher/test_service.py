"""The dispatcher on a real JetStream: what nodes read is what the fold wants, written once, and never goes back."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from nats.js.api import StreamConfig

from events.base import START, NodeId, Position
from events.desired import Desired, Order
from events.subjects import DESIRED_STREAM, Subjects
from projections.cluster.desired import desired
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from runtime.embedded.nats import EmbeddedNats
from runtime.last_values import LastValues, Stored
from runtime.nats import Connection
from runtime.stored_messages import read_page
from services.dispatcher.service import Dispatcher
from tests.clusters import World
from tests.fixtures.waiting import until
from tests.histories import History, history

SUBJECTS = Subjects()
N1, N2 = NodeId("n1"), NodeId("n2")


class Counted(LastValues):
    """Last values that keep count of what was read and written of them."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, DESIRED_STREAM)
        self.got: list[str] = []
        self.put_on: list[str] = []
        self.done = 0  # writes that were answered
        self.open = asyncio.Event()  # closed: a write waits before it is sent
        self.open.set()

    async def get(self, subject: str) -> Stored:
        """See `LastValues`."""
        self.got.append(subject)
        return await super().get(subject)

    async def put(self, subject: str, payload: bytes, *, after: int) -> int | None:
        """See `LastValues`."""
        await self.open.wait()
        self.put_on.append(subject)
        sequence = await super().put(subject, payload, after=after)
        self.done += 1
        return sequence


class Following:
    """A dispatcher with a fold of its own, which reads a log as far as it is let."""

    def __init__(self, connection: Connection, *, active: Callable[[], bool] = lambda: True) -> None:
        self.values = Counted(connection)
        self.dispatcher = Dispatcher(self.values, SUBJECTS, active)
        self.cluster = Cluster()
        self.read = 0

    def follow(self, world: World | History, most: int = 1 << 30) -> None:
        """Read on by at most so many records."""
        stretch = tuple(world.records[self.read : self.read + most])
        self.read += len(stretch)
        for recorded in stretch:
            self.cluster = evolve(self.cluster, recorded)
        self.dispatcher.watch(self.cluster, stretch)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Following"]:
        """The dispatcher writes until the block is left."""
        task = asyncio.create_task(self.dispatcher.run())
        try:
            yield self
            assert not task.done() or task.result() is None
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def connection(nats_connection: Connection) -> Connection:
    """A connection to a server that keeps every value ever written, so that a test sees them in order."""
    await nats_connection.jetstream().add_stream(
        StreamConfig(name=DESIRED_STREAM, subjects=["muster.main.desired.*"], allow_direct=True)
    )
    return nats_connection


async def stored(connection: Connection) -> list[Desired]:
    """Every value that was ever stored, in order."""
    found: list[Desired] = []
    after = 0
    while page := await read_page(connection, DESIRED_STREAM, "muster.main.desired.*", after=after):
        after = page[-1].sequence
        found += [msgspec.json.decode(message.payload, type=Desired) for message in page]
    return found


async def last(connection: Connection, cluster: Cluster) -> dict[NodeId, Desired | None]:
    """What each node would read now, whenever it is as of."""
    values = LastValues(connection, DESIRED_STREAM)
    found: dict[NodeId, Desired | None] = {}
    for node_id in cluster.nodes:
        payload = (await values.get(SUBJECTS.desired(node_id))).payload
        with suppress(msgspec.DecodeError):
            found[node_id] = bare(msgspec.json.decode(payload, type=Desired))
    return found


def wanted(cluster: Cluster) -> dict[NodeId, Desired]:
    """What the fold wants each node to run."""
    return {node: bare(desired(cluster, node)) for node in cluster.nodes}


def bare(value: Desired) -> Desired:
    """The value without what changes with time alone."""
    return msgspec.structs.replace(value, as_of=START, waiting=None)


async def settled(connection: Connection, cluster: Cluster) -> None:
    """Every node reads what the fold wants."""
    async with asyncio.timeout(10):
        while True:
            if await last(connection, cluster) == wanted(cluster):
                return
            await asyncio.sleep(0.01)


async def test_differences_are_written_and_nothing_else(connection: Connection) -> None:
    """One write a change; what changes nothing for an agent writes nothing; a second dispatcher finds all as it is."""
    world = World({"n1": 2, "n2": 2})
    one = Following(connection)
    async with one.running():
        one.follow(world)
        await settled(connection, world.cluster)
        assert sorted(one.values.put_on) == [SUBJECTS.desired(N1), SUBJECTS.desired(N2)]
        job = world.submit("job", 1)
        one.follow(world)
        world.rounds()
        one.follow(world)
        await settled(connection, world.cluster)
        world.start(job)
        world.rounds()
        one.follow(world)
        world.cancel(job)
        world.rounds()
        one.follow(world)
        await settled(connection, world.cluster)
    assert one.values.put_on[2:] == [SUBJECTS.desired(N1)] * 2
    assert len(one.values.got) == 2  # what we wrote ourselves is not read again

    two = Following(connection)
    async with two.running():
        two.follow(world)
        await until(lambda: len(two.values.got) == 2)
        await settled(connection, world.cluster)
    assert two.values.put_on == []


async def test_a_share_stays_until_it_is_released(connection: Connection) -> None:
    """As `run`, then as `stop`, through the report of its end, and no longer than its release."""
    world = World({"n1": 2})
    job = world.submit("job", 2)
    following = Following(connection)
    async with following.running():
        orders: list[list[Order]] = []
        for step in (world.rounds, lambda: world.cancel(job), world.rounds, lambda: world.end(job),
                     lambda: world.release(job), world.rounds):  # fmt: skip
            step()
            following.follow(world)
            await settled(connection, world.cluster)
            orders.append([share.order for share in (await stored(connection))[-1].shares])

    assert orders == [[Order.RUN], [Order.RUN], [Order.STOP], [Order.STOP], [], []]


async def test_a_placed_gang_is_told_where_it_meets_and_who_it_is(connection: Connection) -> None:
    """Ranks, world size, rendezvous and GPU UUIDs as they are on the wire."""
    world = World({"n1": 4, "n2": 4, "n3": 4})
    world.submit("gang", 6, nodes=3, gpus_per_node=2, env={"A": "b"})
    world.rounds()
    following = Following(connection)
    async with following.running():
        following.follow(world)
        await settled(connection, world.cluster)

    told = {value.node_id: value for value in await stored(connection)}
    for rank, name in enumerate(("n1", "n2", "n3")):
        value = told[NodeId(name)]
        (share,) = value.shares
        assert (value.epoch, value.instance, value.lost) == (world.cluster.nodes[NodeId(name)].epoch, "i", False)
        assert (share.node_rank, share.nodes, share.first_rank, share.local_size) == (rank, 3, 2 * rank, 2)
        assert (share.world_size, share.master_addr, share.master_port) == (6, "127.0.0.1", 20_000)
        assert (share.gpu_uuids, share.slots) == ((f"{name}-0", f"{name}-1"), 0b11)
        assert share.spec.env == {"A": "b"}


async def test_a_takeover_compares_every_node(connection: Connection) -> None:
    """Whatever happened meanwhile: values of another version, of a fold gone wrong, or none at all are mended."""
    world = World({"n1": 2, "n2": 2, "n3": 2})
    leading, asked = False, 0

    def active() -> bool:
        nonlocal asked
        asked += 1
        return leading

    standby = Following(connection, active=active)
    standby.follow(world)
    values = LastValues(connection, DESIRED_STREAM)
    await values.put(SUBJECTS.desired(N1), b"\x00 not of this version", after=0)
    wrong = msgspec.json.encode(msgspec.structs.replace(desired(world.cluster, N2), instance="wrong"))
    await values.put(SUBJECTS.desired(N2), wrong, after=0)
    async with standby.running():
        world.submit("job", 1)
        world.rounds()
        standby.follow(world)
        await until(lambda: asked > 1)
        assert standby.values.got == []
        leading = True
        await settled(connection, world.cluster)
        assert sorted(standby.values.put_on) == [SUBJECTS.desired(name) for name in sorted(world.cluster.nodes)]

        leading, asked = False, 0
        await until(lambda: asked > 0)
        read = len(standby.values.got)
        sequence = (await values.get(SUBJECTS.desired(N2))).sequence
        await values.put(SUBJECTS.desired(N2), wrong, after=sequence)
        leading = True
        await settled(connection, world.cluster)
        assert len(standby.values.got) == read + 3


async def test_nothing_is_written_for_a_newer_value(connection: Connection) -> None:
    """Another dispatcher has read further: ours waits until it has, too."""
    world = World({"n1": 2})
    newer = msgspec.structs.replace(desired(world.cluster, N1), instance="later", as_of=Position(1 << 50))
    await LastValues(connection, DESIRED_STREAM).put(SUBJECTS.desired(N1), msgspec.json.encode(newer), after=0)
    following = Following(connection)
    async with following.running():
        following.follow(world)
        await until(lambda: following.values.got)
        world.submit("job", 1)
        world.rounds()
        following.follow(world)
        await until(lambda: not following.dispatcher._due)
    assert following.values.put_on == []


@pytest.mark.parametrize("seed", range(3))
async def test_two_at_once_never_go_back_and_end_as_the_fold(connection: Connection, seed: int) -> None:
    """Each reads at its own pace, both write: of every node the stored positions only rise."""
    chance = random.Random(seed)
    grown = history(seed, 250)
    one, two = Following(connection), Following(connection)
    async with one.running(), two.running():
        while min(one.read, two.read) < len(grown.records):
            chance.choice((one, two)).follow(grown, chance.randrange(1, 40))
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
        await settled(connection, grown.cluster)

    as_of: dict[NodeId, Position] = {}
    values = await stored(connection)
    for value in values:
        assert value.as_of >= as_of.get(value.node_id, START)
        as_of[value.node_id] = value.as_of
    assert {value.node_id for value in values} == set(grown.cluster.nodes)


async def test_one_that_slept_in_the_middle_of_a_write_cannot_bring_back_a_run(connection: Connection) -> None:
    """It knew of the placement only; meanwhile the run has come and gone, and the node is as it was before."""
    world = World({"n1": 1})
    slow, quick = Following(connection), Following(connection)
    async with slow.running(), quick.running():
        quick.follow(world)
        await settled(connection, world.cluster)
        slow.follow(world)
        await until(lambda: slow.values.got)
        job = world.submit("job", 1)
        world.rounds()
        slow.values.open.clear()
        slow.follow(world)  # it is about to write the run
        await until(lambda: not slow.dispatcher._due)
        world.end(job)
        world.release(job)
        world.rounds()
        before = len(quick.values.put_on)
        quick.follow(world)
        await until(lambda: len(quick.values.put_on) > before)
        slow.values.open.set()
        await until(lambda: len(slow.values.put_on) == 1)
        await until(lambda: len(slow.values.got) == 2)

    assert [value.shares for value in await stored(connection)] == [(), ()]


async def test_a_server_that_goes_and_comes_back_loses_nothing(
    nats_server: EmbeddedNats, connection: Connection
) -> None:
    """Writes that failed or are unknown are compared anew; the dispatcher goes on meanwhile."""
    world = World({"n1": 4, "n2": 4})
    following = Following(connection)
    async with following.running():
        following.follow(world)
        await settled(connection, world.cluster)
        nats_server.kill()
        await nats_server.wait()
        await until(lambda: not connection.is_connected)
        jobs = [world.submit(f"job{number}", 2) for number in range(4)]
        world.rounds()
        following.follow(world)
        await until(lambda: len(following.values.put_on) > 2)
        world.cancel(jobs[0])
        world.rounds()
        following.follow(world)
        await nats_server.stop()
        await nats_server.start()
        await until(lambda: connection.is_connected)
        await settled(connection, world.cluster)


async def test_a_node_with_more_to_do_than_one_message_holds_is_told_all_of_it(connection: Connection) -> None:
    """What was left out at first comes when what was told has started."""
    world, following = World({"n1": 24}), Following(connection)
    for number in range(24):
        world.submit(f"job{number:02}", 1, env={"LARGE": "x" * 60_000})
    world.rounds()
    async with following.running():
        following.follow(world)
        await until(lambda: following.values.done == 1)
        (first,) = await stored(connection)
        assert 0 < len(first.shares) < 24
        for share in first.shares:
            world.start(share.job_id)
        following.follow(world)
        await until(lambda: following.values.done == 2)
    assert len((await stored(connection))[-1].shares) == 24
