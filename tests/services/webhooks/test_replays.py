"""Replays: a range goes to one endpoint again, step by step, and only what it wants."""

from events.base import START, Position
from services.webhooks import replays
from services.webhooks.replays import Replay
from services.webhooks.wanted import Wanted
from tests.fixtures.waiting import until
from tests.services.webhooks.receiver import Receiver
from tests.services.webhooks.sending import Sender


async def asked(sender: Sender, after: Position, until: Position, name: str = "w1") -> Replay | None:
    """What became of asking for a range."""
    wanted = Replay(endpoint_id=name, after=after, until=until, made_at=sender.clock.now(), made_by="test")
    async with sender.pool.acquire() as conn:
        return await replays.ask(conn, wanted)


async def stepped(sender: Sender) -> bool:
    """Whether a step was taken."""
    async with sender.pool.acquire() as conn:
        return await replays.step(conn, sender.log, sender.clock.now())


async def test_only_what_is_wanted_of_the_range_waits_again(sender: Sender, receiver: Receiver) -> None:
    """With both ends where they were asked for, whatever else the log holds; delivered once more under the same ids."""
    sent = await sender.submit(4)
    await sender.submit(3, team="blue")
    await sender.endpoint(receiver.url, Wanted(("musterbook.job.*",), teams=("red",)))
    await sender.endpoint(receiver.url, name="w2")
    first = Position((await sender.log.end()) - 6)
    async with sender.running():
        await sender.submit()
        await sender.settled(1)
        assert await asked(sender, first, Position(first + 5)) is not None
        await sender.settled(4)
        await sender.settled(1, name="w2")
    assert sorted(receiver.ids[-3:]) == sorted(sent[1:])
    (done,) = await replays.replays(sender.pool, "w1")
    assert (done.matched, done.reached) == (3, first + 5)
    assert done.ended_at is not None


async def test_a_replay_goes_on_where_it_was(sender: Sender, receiver: Receiver) -> None:
    """A stretch a step, each put down with how far it came; then there is nothing more to do."""
    await sender.endpoint(receiver.url)
    await sender.submit(2_500)
    end = await sender.log.end()
    assert await asked(sender, START, end) is not None
    assert await asked(sender, START, end) is None  # one at a time
    assert await stepped(sender)
    (half,) = await replays.replays(sender.pool, "w1")
    assert half.ended_at is None
    assert START < half.reached < end
    assert await stepped(sender)
    assert not await stepped(sender)
    (done,) = await replays.replays(sender.pool, "w1")
    assert (done.reached, done.matched) == (end, 2_500)
    assert done.ended_at is not None
    assert await sender.states() == {"waiting": 2_500}


async def test_an_attempt_that_is_under_way_is_not_begun_again(sender: Sender, receiver: Receiver) -> None:
    """What it brings is what was asked for."""
    receiver.open.clear()
    await sender.endpoint(receiver.url)
    async with sender.running():
        await sender.submit()
        await until(lambda: receiver.received)
        await asked(sender, START, await sender.log.end())
        await stepped(sender)
        receiver.open.set()
        await sender.settled(1)
    assert len(receiver.received) == 1
