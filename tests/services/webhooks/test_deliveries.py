"""Deliveries: claimed by one, noted by who claimed, forgotten when they are old."""

from datetime import timedelta

from services.webhooks import deliveries, endpoints, reached
from services.webhooks.deliveries import AT_ONCE_MAX, LEASE_S
from services.webhooks.schedule import Answer, State, Verdict
from tests.services.webhooks.sending import Sender

URL = "https://hooks.example/"
DELIVERED = Verdict(State.DELIVERED)


async def put_down(sender: Sender, count: int, name: str = "w1") -> None:
    """So many deliveries wait for an endpoint."""
    await sender.endpoint(URL, name=name)
    await sender.submit(count)
    async with sender.pool.acquire() as conn:
        there = await reached.begin(conn, sender.log)
        assert there is not None
        await reached.take(conn, there, sender.log.stretch(there.position), sender.clock.now())


async def test_an_attempt_is_claimed_once_until_its_lease_ends(sender: Sender) -> None:
    """Oldest first, so many for an endpoint at a time; what was not noted by then is claimed again."""
    await put_down(sender, 6)
    first = await sender.claim()
    assert len(first) == AT_ONCE_MAX
    assert max(one.position for one in first) < (await sender.deliveries())[1].position
    assert await sender.claim() == []
    sender.clock.advance(LEASE_S)
    again = await sender.claim()
    assert len(again) == AT_ONCE_MAX
    assert {one.claim for one in first}.isdisjoint(one.claim for one in again)


async def test_who_lost_a_claim_notes_nothing(sender: Sender) -> None:
    """The attempt that was begun since says what became of it."""
    await put_down(sender, 1)
    (lost,) = await sender.claim()
    sender.clock.advance(LEASE_S)
    (held,) = await sender.claim()
    assert (lost.attempts, held.attempts) == (1, 2)
    async with sender.pool.acquire() as conn:
        await deliveries.note(conn, lost, Answer(500), Verdict(State.FAILED), sender.clock.now())
        await deliveries.put_back(conn, lost, sender.clock.now())
        assert await sender.states() == {"waiting": 1}
        assert await sender.claim() == []
        await deliveries.note(conn, held, Answer(204), DELIVERED, sender.clock.now())
    assert await sender.states() == {"delivered": 1}


async def test_an_attempt_that_is_put_back_does_not_count(sender: Sender) -> None:
    """Nothing was sent."""
    await put_down(sender, 1)
    (held,) = await sender.claim()
    async with sender.pool.acquire() as conn:
        await deliveries.put_back(conn, held, sender.clock.now() + timedelta(seconds=5))
    assert await sender.claim() == []
    sender.clock.advance(5)
    (again,) = await sender.claim()
    assert again.attempts == 1


async def test_what_has_ended_is_forgotten_and_what_waits_is_not(sender: Sender) -> None:
    """However old."""
    await put_down(sender, 2)
    held = await sender.claim()
    async with sender.pool.acquire() as conn:
        await deliveries.note(conn, held[0], Answer(204), DELIVERED, sender.clock.now())
        assert await deliveries.forget(conn, sender.clock.now(), 10) == 0
        assert await sender.states() == {"delivered": 1, "waiting": 1}
        sender.clock.advance(1)
        assert await deliveries.forget(conn, sender.clock.now(), 10) == 1
    assert await sender.states() == {"waiting": 1}


async def test_an_endpoint_that_too_much_waits_for_is_known(sender: Sender) -> None:
    """And no other."""
    await put_down(sender, 3)
    await sender.endpoint(URL, name="w2")
    async with sender.pool.acquire() as conn:
        assert await deliveries.overfull(conn, 3) == ["w1"]
        assert await deliveries.overfull(conn, 4) == []
        await endpoints.stop(conn, "w1", "backlog")
        assert await deliveries.overfull(conn, 3) == []
    assert await sender.claim() == []
