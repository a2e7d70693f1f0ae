"""The log in memory gives the same log for the same calls."""

from datetime import timedelta
from itertools import chain, repeat

import pytest

from events.base import START, position_of
from events.log.memory import MemoryLog
from events.log.port import STRETCH_MAX, Broken
from tests.events.log.rigs import NOW, cancel, decided, started, submitted


async def written() -> MemoryLog:
    """A log of three batches, whose clock goes back once."""
    times = chain([NOW, NOW - timedelta(hours=1)], repeat(NOW + timedelta(seconds=1)))
    log = MemoryLog("main", lambda: next(times))
    await log.record([submitted("j1"), started("j1-1")])
    await log.append(decided("j1"), after=START)
    await log.record([cancel("j1")])
    return log


async def test_the_same_calls_give_the_same_log() -> None:
    """Ids included: a simulation repeats from its seed."""
    assert (await written()).stretch() == (await written()).stretch()


async def test_times_never_go_back() -> None:
    """As on a server whose clock was set."""
    times = [r.at for r in (await written()).stretch()]

    assert times == [NOW] * 4 + [NOW + timedelta(seconds=1)]


async def test_a_stretch_is_bounded_and_begins_anywhere() -> None:
    """It reads without a loop, for simulations that have none."""
    log = await written()

    assert [len(log.stretch(position_of(1, n))) for n in range(6)] == [5, 4, 3, 2, 1, 0]
    assert log.stretch(position_of(1, 1), most=2) == log.stretch()[1:3]
    with pytest.raises(Broken):
        log.stretch(position_of(1, 6))
    await log.record([cancel(f"j{n}") for n in range(STRETCH_MAX)])
    assert len(log.stretch()) == STRETCH_MAX
