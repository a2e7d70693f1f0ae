"""The loop under every simulated world: it never waits, knows whose a callback is, and refuses what is real."""

import asyncio
import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.sim.clock import BEGIN, SimClock, no_real_time
from tests.sim.loop import State, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """A loop of its own, with whatever failed in it."""
    loop = VirtualLoop(Random(1))
    yield loop
    loop.drain()
    loop.close()


def test_an_hour_passes_in_no_time(loop: VirtualLoop) -> None:
    """Sleeps and time-outs are jumps, each to its very moment."""

    async def wait() -> list[float]:
        times = [loop.time()]
        await asyncio.sleep(3_600)
        times.append(loop.time())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await asyncio.Event().wait()
        return [*times, loop.time()]

    begun_s = time.monotonic()
    assert loop.run_until_complete(wait()) == [0.0, 3_600.0, 3_600.25]
    assert time.monotonic() - begun_s < 5
    assert (SimClock(loop).now() - BEGIN).total_seconds() == 3_600.25


def test_what_is_ready_runs_in_an_order_that_the_seed_draws() -> None:
    """Twice the same with one seed, another with most others."""

    def order(seed: int) -> str:
        loop, told = VirtualLoop(Random(seed)), []
        for letter in "abcdefgh":
            loop.call_soon(told.append, letter)
        loop.call_later(1.0, loop.stop)
        loop.run_forever()
        loop.close()
        return "".join(told)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(5)}) == 5


def test_a_killed_process_runs_nothing_any_more_not_even_its_ends(loop: VirtualLoop) -> None:
    """`kill -9` asks nobody; and what others wait for from it never comes."""
    told: list[str] = []

    async def live() -> None:
        try:
            await asyncio.sleep(2)
            told.append("woke")
        finally:
            told.append("ended")

    process = loop.process("p")
    process.start(live())
    loop.call_later(1.0, process.kill)
    loop.run_until_complete(asyncio.sleep(10))
    assert (told, process.state) == ([], State.DEAD)
    told.append("over")


def test_a_paused_process_goes_on_late(loop: VirtualLoop) -> None:
    """Its timers came meanwhile: all at once, at the moment when it wakes."""
    told: list[float] = []

    async def tick() -> None:
        while len(told) < 3:
            await asyncio.sleep(1)
            told.append(loop.time())

    process = loop.process("p")
    process.start(tick())
    loop.call_later(1.5, process.pause)
    loop.call_later(9.5, process.resume)
    loop.run_until_complete(asyncio.sleep(20))
    assert told == [1.0, 9.5, 10.5]


def test_a_fuse_kills_between_two_steps(loop: VirtualLoop) -> None:
    """At any await that a process has: so a crash is tried in the middle of everything."""
    reached: list[int] = []
    for steps in range(1, 8):
        told: list[int] = []

        async def work(told: list[int] = told) -> None:
            for number in range(20):
                told.append(number)
                await asyncio.sleep(0.1)

        process = loop.process("p")
        process.burnt, process.fuse = process.kill, steps
        process.start(work())
        loop.run_until_complete(asyncio.sleep(5))
        reached.append(len(told))
    assert reached == sorted(reached)
    assert reached[0] == 0
    assert reached[-1] > 2


def test_what_fails_in_a_process_is_told(loop: VirtualLoop) -> None:
    """A process that ends of itself has a bug, and a world with one is broken."""
    told: list[str] = []
    loop.failed = lambda what, error: told.append(f"{what}: {error}")

    async def fail() -> None:
        raise ValueError("no")

    loop.process("p").start(fail())
    loop.run_until_complete(asyncio.sleep(1))
    assert told == ["p ended: no"]


def test_real_time_and_chance_are_refused() -> None:
    """What they give would be another at each replay."""
    with no_real_time():
        for real in (time.time, time.monotonic, __import__("secrets").token_hex):
            with pytest.raises(RuntimeError, match="was used in a simulation"):
                real()
    assert time.time() > 0


def test_a_world_in_which_all_wait_for_each_other_says_so() -> None:
    """Instead of waiting for ever."""
    loop = VirtualLoop(Random(1))
    with pytest.raises(RuntimeError, match="nothing will ever happen again"):
        loop.run_until_complete(asyncio.Event().wait())
    loop.drain()
    loop.close()
