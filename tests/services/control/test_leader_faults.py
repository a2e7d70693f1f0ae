"""Leaders whose answers are lost, whose server stands still or crashes, who die, and who come and go: nothing hurts."""

import asyncio
import os
import random
import signal
import time
from contextlib import AsyncExitStack
from typing import Final

import pytest

from events.base import JobId, Position, Stretch
from events.head import LeadershipTaken
from events.job import JobAdmitted, JobPlaced, JobSubmitted
from events.log.append import JetStreamLog
from events.log.port import Log
from projections.cluster.state import Cluster
from runtime.embedded.nats import EmbeddedNats
from runtime.lease import Lease
from runtime.nats import connect
from tests.fixtures.waiting import freeze, until
from tests.services.control.cells import CLOCK, Cell, Go, Hint, Way, answer_lost, ask_lost

LEASE_S: Final = 1.0


@pytest.mark.parametrize("way", [answer_lost, ask_lost])
async def test_an_answer_that_is_lost_is_found_in_the_log(cell: Cell, way: Way) -> None:
    """Written or not, the round after decides on what is there: nothing twice, nothing left out, and no waiting."""
    async with cell.plane("a", Hint(held=True)) as (plane, log):
        await cell.join("n1", 4)
        await until(lambda: plane.leading)
        log.way = way
        job = await cell.submit("job", 1)
        await until(lambda: log.failed)
        log.way = None
        await until(lambda: cell.placed(job), within_s=2)
        assert set(log.failed) == {"Unknown"}
    assert cell.kinds(JobAdmitted, JobPlaced) == ["JobAdmitted", "JobPlaced"]


async def test_an_append_that_arrives_late_is_written_once_or_refused(cell: Cell) -> None:
    """It was given up, decided again, and then both are there: the head lets one of them in."""
    appends: list[Go] = []

    async def given_up(go: Go) -> Position:
        appends.append(go)
        return await ask_lost(go)

    async with cell.plane("a", Hint(held=True)) as (plane, log):
        await cell.join("n1", 4)
        await until(lambda: plane.leading)
        log.way = given_up
        job = await cell.submit("job", 1)
        await until(lambda: len(appends) >= 2)
        log.way = None
        outcomes = await asyncio.gather(*(append() for append in appends), return_exceptions=True)
        await until(lambda: cell.placed(job))
        assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) <= 1
    assert cell.kinds(JobAdmitted, JobPlaced) == ["JobAdmitted", "JobPlaced"]


@pytest.mark.parametrize("what", ["leadership", "round"])
async def test_a_server_that_stands_still_longer_than_any_answer_stalls_nothing(
    nats_server: EmbeddedNats, real: Cell, what: str
) -> None:
    """Stopped right when an append is sent, until that is given up and longer; then it goes on, and so do we."""
    lease, other, turns = Hint(held=True), Hint(), 0

    def turn(_cluster: Cluster, _stretch: Stretch) -> None:
        nonlocal turns
        turns += 1

    async with real.plane("a", lease, watch=turn) as (plane, log), real.plane("b", other):
        await real.join("n1", 8)
        await until(lambda: plane.leading)
        if what == "leadership":  # it has to be taken anew
            lease.held, other.held = False, True
            await until(lambda: plane.cluster.leader == "b")
            other.held = False
        log.at_append.clear()
        jobs = [await real.submit(f"job{number}", 1) for number in range(4)]
        lease.held = True
        await until(lambda: log.waiting)
        assert nats_server.pid is not None
        freeze(nats_server.pid)
        try:
            log.at_append.set()
            await until(lambda: log.failed)
            turned = turns
            await until(lambda: turns > turned + 2)
        finally:
            os.kill(nats_server.pid, signal.SIGCONT)
        await until(lambda: all(real.placed(job) for job in jobs), within_s=5)
        assert "Unknown" in log.failed
    assert sorted(real.kinds(JobAdmitted, JobPlaced)) == ["JobAdmitted"] * 4 + ["JobPlaced"] * 4


async def test_a_server_that_crashes_in_the_middle_leaves_whole_decisions(
    nats_server: EmbeddedNats, real: Cell
) -> None:
    """Killed while jobs come in; what was decided is there whole, and the rest is decided when it is back."""
    async with real.plane("a", Hint(held=True)) as (plane, _):
        await real.join("n1", 8)
        await until(lambda: plane.leading)
        jobs = [await real.submit(f"job{number}", 1) for number in range(6)]
        nats_server.kill()
        await nats_server.wait()
        await nats_server.stop()
        await nats_server.start()
        await until(lambda: all(real.placed(job) for job in jobs), within_s=15)
    assert real.kinds(JobPlaced) == ["JobPlaced"] * 6


async def test_when_the_holder_of_a_real_lease_dies_the_next_decision_comes_within_lease_and_a_second(
    nats_server: EmbeddedNats, real: Cell
) -> None:
    """Killed with its connection, so that it gives nothing back: the other has seen its lease unchanged for long enough."""
    connections = {name: await connect(nats_server.login("system"), name=name) for name in ("a", "b")}

    def open_log(name: str) -> Log:
        return JetStreamLog(connections[name], source=name) if name in connections else real.gate

    real.open_log = open_log
    leases = {n: Lease(c, instance=n, ttl_s=LEASE_S, clock=CLOCK) for n, c in connections.items()}
    renewing = {name: asyncio.create_task(lease.run()) for name, lease in leases.items()}
    try:
        async with AsyncExitStack() as stack:
            planes = {n: (await stack.enter_async_context(real.plane(n, leases[n])))[0] for n in leases}
            await real.join("n1", 2)
            await until(lambda: any(plane.leading for plane in planes.values()))
            leader, successor = sorted(planes, key=lambda name: not planes[name].leading)
            assert not planes[successor].leading
            await connections[leader].close()
            renewing[leader].cancel()
            killed = time.monotonic()
            job = await real.submit("job", 1)
            await until(lambda: real.placed(job), within_s=LEASE_S + 1)
            assert time.monotonic() - killed < LEASE_S + 1
            assert planes[successor].leading
    finally:
        for task in renewing.values():
            task.cancel()
        await asyncio.gather(*renewing.values(), return_exceptions=True)
        for connection in connections.values():
            await connection.close()


async def submit_in_a_storm(cell: Cell, chance: random.Random, hints: list[Hint]) -> list[JobId]:
    """Jobs that were asked for while leaders came and went, users changed their minds, and nodes joined anew."""
    jobs: list[JobId] = []
    for number in range(40):
        jobs.append(await cell.submit(f"job{number}", chance.choice((1, 2, 4)), retries_infrastructure=50))
        if chance.random() < 0.2:
            await cell.cancel(chance.choice(jobs))
        if chance.random() < 0.1:
            await cell.join(f"n{chance.randrange(3)}", 4)
        for hint in hints:
            hint.held = chance.random() < 0.5
        for run in list(cell.cluster.runs.values()):
            if chance.random() < 0.5:
                await cell.finish(run)
        await asyncio.sleep(chance.choice((0, 0.03)))
    return jobs


@pytest.mark.parametrize("seed", range(2))
async def test_leaders_that_come_and_go_with_lost_answers_finish_every_job(memory: Cell, seed: int) -> None:
    """Three planes whose hints flicker, any number of which believe in them at once; each append may go any way."""
    chance = random.Random(seed)
    hints = [Hint(held=True), Hint(), Hint()]

    async def any_way(go: Go) -> Position:
        await asyncio.sleep(chance.choice((0, 0, 0.02)))
        way = chance.choice((None, None, None, answer_lost, ask_lost))
        return await (go() if way is None else way(go))

    async with AsyncExitStack() as stack:
        for name, hint in zip("abc", hints, strict=True):
            _, log = await stack.enter_async_context(memory.plane(name, hint))
            log.way = any_way
        for number in range(3):
            await memory.join(f"n{number}", 4)
        jobs = await submit_in_a_storm(memory, chance, hints)
        for hint in hints:
            hint.held = hint is hints[0]
        async with asyncio.timeout(30):
            while memory.cluster.jobs or len(memory.kinds(JobSubmitted)) < len(jobs):
                for run in list(memory.cluster.runs.values()):
                    await memory.finish(run)
                await asyncio.sleep(0.02)
    leaders = {r.event.instance for r in memory.records if isinstance(r.event, LeadershipTaken)}
    assert leaders == {"a", "b", "c"}
