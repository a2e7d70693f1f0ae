"""Traces on a pool: held, job by job, to a replay that shares no line with ours; and what promises are worth."""

import gzip
from datetime import datetime, timedelta
from random import Random

import pytest

from events.base import Event
from events.job import StartPromised
from events.policy import JobOrder, PolicySet
from services.simulate.engine import BEGIN, Simulation
from services.simulate.replay import Pool, named, replay
from services.simulate.trace import read_trace
from services.simulate.work import US, Work
from tests.recordings import recording
from tests.services.simulate.reference import Asked, Nodes, starts

FIRST = 800  # jobs of a recorded trace
KEYS = {
    JobOrder.FIFO: lambda _job, number: (number,),
    JobOrder.SJF: lambda job, number: (job.runtime_s, number),
}


def drawn(seed: int, jobs: int = 60) -> list[Work]:
    """A small trace."""
    chance = Random(seed)
    at_s, lines = 0, ["job_id,submit_s,gpus,runtime_s"]
    for number in range(jobs):
        at_s += chance.choice((0, 0, 1, 3, 10))
        gpus = chance.choice((1, 1, 1, 2, 3, 4, 5, 7, 8, 8, 9, 12, 16, 21, 24))
        lines.append(f"j{number},{at_s},{gpus},{chance.choice((1, 2, 5, 5, 17, 40))}")
    return read_trace(lines)


def begun(works: list[Work], pool: Pool, order: JobOrder, backfill: str = "none") -> list[int]:
    """When each job starts, in seconds; it is checked that all do."""
    simulation, _ = replay(works, pool, order=order, backfill=backfill)
    found = [simulation.lives[work.job_id].started_us for work in works]
    return [started_us // US for started_us in found if started_us is not None]


def expected(works: list[Work], pool: Pool, order: JobOrder) -> list[int]:
    """The same, by the plain rules."""
    asked = [Asked(work.arrives_us // US, work.spec.gpus, work.runtime_us // US) for work in works]
    return starts(asked, *pool, KEYS[order])


@pytest.mark.parametrize("order", list(KEYS))
@pytest.mark.parametrize("seed", range(12))
def test_every_start_is_the_one_of_the_plain_rules(seed: int, order: JobOrder) -> None:
    """Ends, then arrivals, then decisions; the head blocks; the fullest node that holds it."""
    works, pool = drawn(seed), Pool(3 + seed % 3, 8)
    assert begun(works, pool, order) == expected(works, pool, order)


@pytest.mark.parametrize("order", list(KEYS))
@pytest.mark.parametrize(("name", "nodes"), [("philly-2017", 12), ("acme-kalos-2023", 128)])
def test_recorded_traces_start_as_by_the_plain_rules(name: str, nodes: int, order: JobOrder) -> None:
    """On pools so small that they queue."""
    with gzip.open(recording(f"traces/{name}.csv.gz"), "rt") as text:
        works = [work for work in read_trace(text) if work.spec.gpus <= nodes * 8][:FIRST]
    assert begun(works, Pool(nodes, 8), order) == expected(works, Pool(nodes, 8), order)


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@pytest.mark.parametrize("seed", range(12))
def test_no_promise_is_broken_where_runtimes_are_known(seed: int, backfill: str) -> None:
    """In order of age nobody comes before whom a start was promised: whoever passes it ends in time."""
    _, figures = replay(drawn(seed), Pool(3 + seed % 3, 8), order=JobOrder.FIFO, backfill=backfill)
    assert figures["promises_made"] > 0
    assert figures["promises_kept"] == figures["promises_made"]
    assert figures["unfinished"] == 0


class Promising(Simulation):
    """Keeps, of each new promise, what was promised and the earliest moment by plain counting: when what runs has ended."""

    def __init__(self) -> None:
        self.kept: list[tuple[datetime | None, datetime]] = []
        super().__init__()

    def record(self, *events: Event) -> None:
        """See `Simulation`."""
        for event in events:
            if isinstance(event, StartPromised):
                self.kept.append((event.start, self._earliest(self.cluster.jobs[event.job_id].spec.gpus)))
            super().record(event)

    def _earliest(self, gpus: int) -> datetime:
        names = sorted(self.cluster.nodes)
        room = Nodes(len(names), 8)
        runs = sorted(self.cluster.runs.values(), key=lambda run: run.placed_at + timedelta(seconds=run.max_runtime_s))
        for run in runs:
            for share in run.shares:
                room.free[names.index(share.node_id)] -= share.slots.bit_count()
        for run in runs:
            for share in run.shares:
                room.free[names.index(share.node_id)] += share.slots.bit_count()
            if room.take(gpus) is not None:
                return run.placed_at + timedelta(seconds=run.max_runtime_s)
        raise AssertionError("it fits an empty pool")


@pytest.mark.parametrize("seed", range(6))
def test_what_is_promised_is_the_earliest_moment(seed: int) -> None:
    """A later one would be kept with ease, and let everybody pass."""
    simulation = Promising()
    simulation.join(named(3), 8)
    simulation.record(PolicySet(at=BEGIN, order=JobOrder.FIFO, promises=1, preemption=False, admitted_ahead=1_000))
    simulation.run(drawn(seed))
    assert simulation.kept
    assert all(promised == earliest for promised, earliest in simulation.kept)


def test_backfilling_shortens_waits() -> None:
    """Over some traces together: that is what it is for."""
    means = {
        backfill: sum(
            replay(drawn(seed), Pool(3, 8), order=JobOrder.FIFO, backfill=backfill)[1]["wait_mean_s"]
            for seed in range(6)
        )
        for backfill in ("none", "easy")
    }
    assert means["easy"] < means["none"] * 0.9


def test_jobs_larger_than_the_pool_are_dropped_and_counted() -> None:
    """They would hold up all behind them for ever."""
    works = read_trace(["job_id,submit_s,gpus,runtime_s", "a,0,17,5", "b,0,16,5"])
    _, figures = replay(works, Pool(2, 8), order=JobOrder.FIFO, backfill="none")
    assert (figures["jobs"], figures["dropped"], figures["unfinished"], figures["wait_mean_s"]) == (2, 1, 0, 0)
    assert (figures["makespan_s"], figures["utilisation"]) == (5, 1)


def test_the_same_trace_gives_the_same_figures_and_says_how_far_it_is() -> None:
    """To the last one."""
    told: list[tuple[int, int]] = []
    runs = [
        replay(drawn(1), Pool(3, 8), order=JobOrder.SJF, backfill="easy", watch=lambda *so: told.append(so))[1]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert told[-1] == (60, 60)


def test_names_of_nodes_sort_as_they_are_numbered() -> None:
    """The first by name is the first."""
    assert named(11)[::10] == ["n00", "n10"]
    assert named(1) == ["n0"]
