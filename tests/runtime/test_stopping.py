"""How a process ends."""

import asyncio
import os
import signal

import pytest

from runtime.stopping import Stop, run_until_stopped, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_cancels_all_parts_and_waits_for_them(number: signal.Signals) -> None:
    """Each part gets to clean up before the process goes on to end."""
    cleaned: list[int] = []

    async def part(which: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(which)

    with stop_on_signals() as stop:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        await run_until_stopped(stop, part(1), part(2))
    assert sorted(cleaned) == [1, 2]
    assert (stop.reason, stop.failed) == (number.name, False)


async def test_a_part_that_fails_ends_the_others_and_is_told() -> None:
    """A bug in one part does not leave the process half alive."""

    async def fails() -> None:
        raise KeyError("bug")

    with pytest.raises(ExceptionGroup) as failed:
        await run_until_stopped(Stop(), fails(), asyncio.Event().wait())
    assert failed.group_contains(KeyError)


async def test_the_first_reason_stays() -> None:
    """What follows from a failure does not hide it, and a failure during an orderly stop does not make it one."""
    stop = Stop()
    stop.fail("nats_connection_lost")
    stop.request("SIGTERM")
    assert (stop.reason, stop.failed) == ("nats_connection_lost", True)
    other = Stop()
    other.request("SIGTERM")
    other.fail("late")
    assert (other.reason, other.failed) == ("SIGTERM", False)
