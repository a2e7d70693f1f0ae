"""How far deliveries reach: every wanted event put down once, for endpoints of every age."""

import asyncio

from events.base import Position
from services.webhooks import endpoints, reached
from services.webhooks.reached import Reached
from tests.services.webhooks.sending import Sender, eventually

URL = "https://hooks.example/"


async def test_an_endpoint_gets_what_comes_behind_its_position(sender: Sender) -> None:
    """And not what an older one is still owed."""
    await sender.endpoint(URL)
    first = await sender.submit(2)
    await sender.endpoint(URL, name="w2")
    second = await sender.submit(2)
    async with sender.pool.acquire() as conn:
        there = await reached.begin(conn, sender.log)
        assert there is not None
        taken = await reached.take(conn, there, sender.log.stretch(there.position), sender.clock.now())
        assert taken == Reached("log-1", await sender.log.end())
    assert [one.webhook_id for one in await sender.deliveries()] == [*first, *second][::-1]
    assert [one.webhook_id for one in await sender.deliveries("w2")] == second[::-1]


async def test_a_stretch_is_taken_from_where_it_was_read_only(sender: Sender) -> None:
    """Two that read the log put nothing down twice, and leave nothing out."""
    await sender.endpoint(URL)
    await sender.submit(3)
    async with sender.pool.acquire() as conn:
        there = await reached.begin(conn, sender.log)
        assert there is not None
        stretch = sender.log.stretch(there.position)
        half = await reached.take(conn, there, stretch[:1], sender.clock.now())
        assert half is not None
        assert await reached.take(conn, there, stretch, sender.clock.now()) is None
        assert await reached.take(conn, Reached("log-2", half.position), stretch[1:], sender.clock.now()) is None
    assert await reached.reached(sender.pool) == half
    assert len(await sender.deliveries()) == 1


async def test_what_came_while_nobody_wanted_anything_is_left_out(sender: Sender) -> None:
    """An endpoint that was stopped, and one that comes later, begin where the log ends then."""
    one = await sender.endpoint(URL)
    await sender.submit(2)
    async with sender.pool.acquire() as conn:
        there = await reached.begin(conn, sender.log)
        assert there is not None
        await endpoints.stop(conn, one.endpoint_id, "operator")
        assert await reached.begin(conn, sender.log) is None
        await sender.submit(5)
        await sender.endpoint(URL, name="w2")
        assert await reached.begin(conn, sender.log) == Reached("log-1", Position(there.position + 7))


async def test_an_endpoint_that_is_being_removed_stops_nobody(sender: Sender) -> None:
    """A stretch that comes meanwhile waits for that, and is put down for the others."""
    await sender.endpoint(URL)
    await sender.endpoint(URL, name="w2")
    await sender.submit()
    async with sender.pool.acquire() as conn:
        there = await reached.begin(conn, sender.log)
        assert there is not None
        async with sender.pool.acquire() as other, other.transaction():
            assert await endpoints.remove(other, "w1")
            stretch = sender.log.stretch(there.position)
            taking = asyncio.create_task(reached.take(conn, there, stretch, sender.clock.now()))
            await eventually(lambda: _waits(sender), what="a wait for the removal")
            assert not taking.done()
        assert await taking is not None
    assert (await sender.deliveries(), len(await sender.deliveries("w2"))) == ([], 1)


async def _waits(sender: Sender) -> bool:
    """Whether a session waits for another."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await sender.pool.fetchval(waiting))
