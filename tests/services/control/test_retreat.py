"""Who is shut out again and again waits longer each time; who is shut out once in a while waits hardly at all."""

import asyncio

from events.head import LeadershipTaken
from services.control.retreat import CALM_S, LEAST_S, MOST_S, Retreat
from tests.fixtures.waiting import until
from tests.services.control.cells import Cell, Hint


def test_each_time_that_follows_soon_is_twice_as_long() -> None:
    """Never longer than a lease takes to run out, so that no failover waits for it; and calm makes it a first time."""
    retreat, now, waits = Retreat(), 0.0, []
    assert retreat.over(now)
    for _ in range(6):
        retreat.shut_out(now)
        begun = now
        while not retreat.over(now):
            now += LEAST_S
        waits.append(now - begun)
    assert waits == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert waits[-1] == MOST_S
    now += CALM_S
    retreat.shut_out(now)
    assert not retreat.over(now + LEAST_S / 2)
    assert retreat.over(now + LEAST_S)


async def test_two_that_both_hold_the_lease_do_not_take_the_lead_by_turns_all_the_time(memory: Cell) -> None:
    """The log gets a handful of records of it, jobs are placed all the same, and one that is left leads soon."""
    mine, others = Hint(held=True), Hint(held=True)
    async with memory.plane("a", mine) as (plane, _), memory.plane("b", others):
        await memory.join("n1", 2)
        await asyncio.sleep(1.5)
        assert 2 <= len(memory.kinds(LeadershipTaken)) <= 10
        job = await memory.submit("job", 1)
        await until(lambda: memory.placed(job), within_s=2)
        others.held = False
        await until(lambda: plane.leading, within_s=MOST_S + 1)
