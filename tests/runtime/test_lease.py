"""The lease, on a real server, with clocks moved by hand: at most one holds it, and it is never lost for good."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from runtime.clock import ManualClock, SystemClock
from runtime.embedded.nats import EmbeddedNats
from runtime.lease import BUCKET, KEY, Lease
from runtime.nats import Connection, connect
from tests.fixtures.waiting import until

TTL_S = 4.0


@pytest.fixture
async def control(nats_server: EmbeddedNats, nats_connection: Connection) -> AsyncIterator[Connection]:
    """A connection with a control plane's rights; the bucket is there."""
    await nats_connection.jetstream().create_key_value(bucket=BUCKET, history=1)
    connection = await connect(nats_server.login("control"), name="control")
    yield connection
    await connection.close()


async def test_the_first_holds_it_and_the_second_follows_when_it_falls_silent(control: Connection) -> None:
    """Silence is counted by each on its own clock; the silent one stops believing before the other starts."""
    clock_one, clock_two = ManualClock(), ManualClock()
    one = Lease(control, instance="one", ttl_s=TTL_S, clock=clock_one)
    two = Lease(control, instance="two", ttl_s=TTL_S, clock=clock_two)
    await one._step()
    await two._step()
    assert (one.held, two.held, two.holder) == (True, False, "one")

    for _ in range(5):  # renewed: the other waits
        clock_one.advance(1)
        clock_two.advance(1)
        await one._step()
        await two._step()
    assert (one.held, two.held) == (True, False)

    clock_one.advance(TTL_S)
    clock_two.advance(TTL_S - 0.1)
    await two._step()
    assert (one.held, two.held) == (False, False)
    clock_two.advance(0.2)
    await two._step()
    assert two.held

    await one._step()  # it comes back, and finds it taken
    assert (one.held, one.holder) == (False, "two")


async def test_no_connection_is_no_lease_and_its_return_is_one(nats_server: EmbeddedNats, control: Connection) -> None:
    """Trouble never leaves the loop: it goes on, and holds it again when the server is back."""
    lease = Lease(control, instance="one", ttl_s=0.5, clock=SystemClock())
    running = asyncio.create_task(lease.run())
    await until(lambda: lease.held)
    nats_server.kill()
    await nats_server.wait()
    await until(lambda: not lease.held, within_s=2)
    await nats_server.stop()
    await nats_server.start()
    await until(lambda: lease.held)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_orderly_end_gives_it_to_the_next_at_once(control: Connection) -> None:
    """A planned restart costs no waiting."""
    lease = Lease(control, instance="one", ttl_s=60, clock=SystemClock())
    running = asyncio.create_task(lease.run())
    await until(lambda: lease.held)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not lease.held
    other = Lease(control, instance="two", ttl_s=60, clock=SystemClock())
    await other._step()
    assert other.held


@pytest.mark.parametrize("value", [b"", b"{", b'{"instance": 7}', b"null", b"\xff"])
async def test_nonsense_in_the_bucket_is_a_free_lease(value: bytes, control: Connection) -> None:
    """What an operator put there by hand stops nobody."""
    await control.jetstream().publish(f"$KV.{BUCKET}.{KEY}", value)
    lease = Lease(control, instance="one", ttl_s=TTL_S, clock=ManualClock())
    await lease._step()
    assert lease.held


async def test_an_answer_that_got_lost_is_looked_up(control: Connection) -> None:
    """The renewal may have been stored: then it is ours, under a revision we did not know."""
    clock = ManualClock()
    lease = Lease(control, instance="one", ttl_s=TTL_S, clock=clock)
    await lease._step()
    await control.jetstream().publish(f"$KV.{BUCKET}.{KEY}", b'{"instance":"one"}')
    await lease._step()  # refused by its revision
    await lease._step()
    assert lease.held


async def test_of_many_at_once_one_holds_it(control: Connection) -> None:
    """All try at the same moment; the server takes one."""
    leases = [Lease(control, instance=f"i{n}", ttl_s=TTL_S, clock=ManualClock()) for n in range(8)]
    await asyncio.gather(*(lease._step() for lease in leases))
    assert sum(lease.held for lease in leases) == 1


async def test_who_no_longer_wants_it_gives_it_to_the_next_at_once(control: Connection) -> None:
    """One that must not decide, by what it cannot read, does not keep those from it that can; it may want it again."""
    wants = True
    one = Lease(control, instance="one", ttl_s=60, clock=SystemClock(), wanted=lambda: wants)
    two = Lease(control, instance="two", ttl_s=60, clock=SystemClock())
    await one._step()
    await two._step()
    assert (one.held, two.held) == (True, False)
    wants = False
    await one._step()
    assert not one.held
    await two._step()
    assert two.held
    wants = True
    await one._step()
    assert (one.held, one.holder) == (False, "two")
