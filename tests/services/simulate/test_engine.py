"""A cluster in virtual time: the order of things at one instant, limits, evictions, jobs that were there before."""

from collections.abc import Sequence
from typing import Any

import pytest

from events.base import Event, JobId, Recorded, TeamId
from events.job import JobSpec, Priority
from events.policy import JobOrder, Overrun, PolicySet
from projections.cluster.audit.audit import audit
from services.simulate.engine import BEGIN, Sample, Simulation
from services.simulate.fault import BadFile
from services.simulate.replay import named
from services.simulate.work import US, Life, Work
from tests.clusters import World


def work(name: str, gpus: int, arrives_s: float, runtime_s: float, **spec: Any) -> Work:
    """A job to come."""
    asked = JobSpec(name=name, command=("true",), gpus=gpus, stop_grace_s=0, **spec)
    return Work(JobId(name), TeamId("t"), asked, round(arrives_s * US), round(runtime_s * US))


def simulated(nodes: int, *works: Work, **policy: Any) -> Simulation:
    """What became of some jobs on nodes of 8 GPUs."""
    simulation = Simulation()
    simulation.join(named(nodes), 8)
    simulation.record(PolicySet(at=BEGIN, **policy))
    simulation.run(works)
    return simulation


def times(life: Life) -> tuple[float | None, float | None]:
    """Start and end in seconds."""
    us = life.started_us, life.ended_us
    return (None if us[0] is None else us[0] / US, None if us[1] is None else us[1] / US)


def test_at_one_instant_ends_come_before_arrivals_and_both_before_decisions() -> None:
    """A job that arrives when another ends takes its place; of two that arrive then, the more urgent one does."""
    lives = simulated(
        1,
        work("first", 8, 0, 10),
        work("low", 8, 10, 5),
        work("high", 8, 10, 5, priority=Priority.HIGH),
        preemption=False,
        order=JobOrder.PRIORITY,
    ).lives
    assert {name: times(life) for name, life in lives.items()} == {
        "first": (0, 10),
        "high": (10, 15),
        "low": (15, 20),
    }


def test_what_is_gone_through_is_counted_as_it_stands_after_each_instant() -> None:
    """Use and queue over time."""
    samples = simulated(1, work("a", 8, 0, 10), work("b", 4, 2, 10), preemption=False).samples
    assert samples == [
        Sample(0, 8, 0, 0),
        Sample(2 * US, 8, 1, 4),
        Sample(10 * US, 4, 0, 0),
        Sample(20 * US, 0, 0, 0),
    ]


def test_a_job_of_no_length_ends_where_it_starts() -> None:
    """And the next one takes its place at the same instant."""
    lives = simulated(1, work("a", 8, 0, 0), work("b", 8, 0, 1), preemption=False).lives
    assert {name: times(life) for name, life in lives.items()} == {"a": (0, 0), "b": (0, 1)}


def test_a_run_ends_at_its_limit_unless_the_policy_lets_it_go_on() -> None:
    """An estimate that is too short costs the job its life, or others their time."""
    late = work("late", 8, 0, 100, max_runtime_s=10)
    killed = simulated(1, late, preemption=False).lives[JobId("late")]
    assert (times(killed), killed.outcome) == ((0, 10), "timed_out")
    spared = simulated(1, late, preemption=False, overrun=Overrun.EXTEND).lives[JobId("late")]
    assert (times(spared), spared.outcome) == ((0, 100), "succeeded")


def test_a_job_that_fits_nowhere_waits_for_ever() -> None:
    """The simulation ends all the same."""
    life = simulated(1, work("a", 9, 0, 1)).lives[JobId("a")]
    assert (times(life), life.outcome) == ((None, None), "")


def test_what_never_ends_in_any_calendar_is_a_fault_of_its_file() -> None:
    """Each is within its limits; one after the other they outlast the year 9999."""
    century_s = 3_153_600_000
    with pytest.raises(BadFile, match=r"2,000 years"):
        simulated(1, *(work(f"job-{number}", 8, 0, century_s) for number in range(120)))


def test_what_is_decided_is_sound() -> None:
    """The independent reading of the log finds nothing in what a simulation wrote."""

    class Kept(Simulation):
        """Keeps what it records."""

        def __init__(self) -> None:
            self.kept: list[Any] = []
            super().__init__()

        def record(self, *events: Any) -> None:
            for event in events:
                super().record(event)
                self.kept.append((event, self.cluster.position))

    simulation = Kept()
    simulation.join(named(3), 8)
    works = [work(f"j{n}", 1 + n * 5 % 13, n // 3, 1 + n % 4) for n in range(60)]
    simulation.run(works)
    assert all(life.outcome == "succeeded" for life in simulation.lives.values())
    assert audit([Recorded(event, position, BEGIN) for event, position in simulation.kept]) == []


@pytest.mark.parametrize("order", [order for order in JobOrder if order is not JobOrder.FAIR])
def test_rounds_that_would_decide_nothing_are_left_out_and_nothing_else(order: JobOrder) -> None:
    """As if it were decided at each instant until a round is empty: two teams, promises, few admitted ahead."""

    class Patient(Simulation):
        """Always tries another round."""

        def _at_rest(self, _events: Sequence[Event]) -> bool:
            return False

    works = [
        work(
            f"j{n}", 1 + n * 7 % 16, n // 4, 1 + n % 9, max_runtime_s=1 + n % 9, priority=list(Priority)[n % 4]
        )._replace(team=TeamId("ab"[n % 2]))
        for n in range(60)
    ]
    found = []
    for kind in (Simulation, Patient):
        simulation = kind()
        simulation.join(named(4), 8)
        simulation.record(PolicySet(at=BEGIN, order=order, admitted_ahead=2, promises=2, preemption=False))
        simulation.run(works)
        found.append((simulation.samples, simulation.lives))
    assert found[0] == found[1]
    assert any(life.promised_us is not None for life in found[0][1].values())


def test_the_more_urgent_evicts_and_who_was_evicted_runs_anew() -> None:
    """From its beginning, when there is room again; its minimum runtime is waited for."""
    works = [work("low", 8, 0, 100), work("high", 8, 10, 5, priority=Priority.HIGH)]
    simulation = simulated(1, *works, min_runtime_s=30, cool_down_s=0)
    low, high = (simulation.lives[JobId(name)] for name in ("low", "high"))
    assert times(high) == (30, 35)
    assert (low.evictions, low.started_us, low.started_last_us, low.ended_us) == (1, 0, 35 * US, 135 * US)
    assert [sample.used for sample in simulation.samples] == [8, 8, 8, 8, 0]


def test_jobs_that_a_cluster_has_already_are_followed() -> None:
    """A run ends its declared time after its start, and what waited takes its place."""
    world = World({"n0": 8})
    world.submit("a", 8, max_runtime_s=100, stop_grace_s=0)
    world.rounds()
    world.start(JobId("a"))
    world.rounds()
    world.wait(30)
    world.submit("b", 8)
    world.rounds()
    simulation = Simulation(world.cluster, begin=world.at)
    for job_id, runtime_s in (("a", 100), ("b", 7)):
        job = world.cluster.jobs[JobId(job_id)]
        simulation.adopt(Work(job.job_id, job.team, job.spec, 0, runtime_s * US))
    simulation.run(())
    assert times(simulation.lives[JobId("a")]) == (-30, 70)
    assert times(simulation.lives[JobId("b")]) == (70, 77)


def test_a_run_that_is_told_to_stop_ends_after_its_grace() -> None:
    """As its agent would end it."""
    world = World({"n0": 8})
    world.submit("a", 8, stop_grace_s=4)
    world.rounds()
    world.cancel(JobId("a"))
    simulation = Simulation(world.cluster, begin=world.at)
    job = world.cluster.jobs[JobId("a")]
    simulation.adopt(Work(job.job_id, job.team, job.spec, 0, 100 * US))
    simulation.run(())
    assert (times(simulation.lives[JobId("a")]), simulation.lives[JobId("a")].outcome) == ((0, 4), "cancelled")
