"""Laws of whole days of a cluster: what holds for every tree of teams, policy and workload."""

from collections import Counter
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.job import GpusEarmarked, JobPlaced, PromiseDropped, PromiseMoved, StartPromised
from events.queues import QueuesSet
from projections.cluster.audit.audit import audit
from projections.cluster.job import JobState
from projections.cluster.quota.bounds import Request
from projections.cluster.quota.entitlement import Standing
from projections.cluster.snapshot import dump, load
from projections.cluster.tick import Tick
from services.control.round import decide_all
from services.simulate.engine import BEGIN
from tests.simulation.days import Day, day
from tests.simulation.floors import below_their_floors, floors_day, floors_tree
from tests.simulation.mixed import mixed_day

SEEDS = st.integers(0, 2**32)


def finished(seed: int) -> Day:
    """The day, to its end."""
    grown, works = day(seed)
    grown.run(works)
    return grown


@given(SEEDS)
@settings(max_examples=60)
def test_no_queue_is_ever_above_its_limit_and_the_log_is_sound(seed: int) -> None:
    """Counted from runs at each placement; and the independent reading of the log finds nothing."""
    grown = finished(seed)

    assert grown.over == []
    assert audit(grown.records) == []
    assert not grown.cluster.unread


@given(SEEDS)
@settings(max_examples=40)
def test_limits_of_a_type_and_what_nodes_are_described_as_hold_for_all_that_starts(seed: int) -> None:
    """Also where a job takes what it was promised when the type was open to it, and the node another."""
    grown, works = mixed_day(seed)
    grown.run(works)

    assert grown.over == []
    assert audit(grown.records) == []
    assert not grown.cluster.unread


@given(SEEDS)
@settings(max_examples=60)
def test_every_job_that_could_run_does(seed: int) -> None:
    """No starvation: what is left at the end is what its queue, or its floor, does not let run at all."""
    grown = finished(seed)

    assert not grown.cluster.runs
    left = [
        job for job in grown.cluster.jobs.values() if not job.hold.value.startswith(("exceeds", "running_max", "over"))
    ]
    standing = Standing(grown.cluster, grown.cluster.at or grown.begin)
    assert [
        (job.job_id, job.hold)
        for job in left
        if standing.blocked(
            Request(
                job.team, job.shape.gpu_types, job.shape.min_gpus or job.shape.gpus, preemptible=job.spec.preemptible
            )
        )
        is None
    ] == []


@given(SEEDS)
@settings(max_examples=40)
def test_floors_are_served_before_anybody_borrows(seed: int) -> None:
    """At no moment does a job wait whose team has less than its floor: what is free is its own, or others have too much."""
    grown, works = floors_day(seed)
    kept_from: list[tuple[int, str, str]] = []
    grown.run(works, lambda *_: kept_from.extend((grown.now_us, *who) for who in below_their_floors(grown)))

    assert kept_from == []


@given(SEEDS)
@settings(max_examples=40)
def test_no_two_jobs_evict_each_other_in_turn(seed: int) -> None:
    """Of each pair at most one was ever stopped for the other; and no job is stopped more often than the policy has it."""
    assert_never_in_turn(finished(seed))


@given(SEEDS)
@settings(max_examples=25)
def test_no_two_jobs_evict_each_other_in_turn_though_shares_are_turned_round_all_day(seed: int) -> None:
    """An operator sets another tree every other moment: who had too little has too much, and back."""
    random = Random(seed)
    grown, works = floors_day(seed)
    capacity = sum(grown.cluster.capacity.values())
    grown.run(works, lambda *_: grown.record(QueuesSet(at=BEGIN, queues=floors_tree(random, capacity))))

    assert_never_in_turn(grown)


def assert_never_in_turn(grown: Day) -> None:
    """No pair of jobs went both ways, and the cap was kept."""
    pairs = {
        (recorded.event.job_id, run_id.rpartition("-")[0])
        for recorded in grown.records
        if isinstance(recorded.event, GpusEarmarked)
        for run_id in recorded.event.victims
    }
    assert {(a, b) for a, b in pairs if (b, a) in pairs} == set()
    assert all(life.evictions <= grown.cluster.policy.evictions_max for life in grown.lives.values())


@given(SEEDS)
@settings(max_examples=15)
def test_the_same_day_is_the_same_to_the_byte(seed: int) -> None:
    """Twice the same records and the same fold; and the fold outlives a snapshot."""
    one, other = finished(seed), finished(seed)

    assert one.records == other.records
    assert dump(one.cluster) == dump(other.cluster)
    saved = load(dump(one.cluster), log_id=one.cluster.log_id)
    assert saved is not None
    assert dump(saved) == dump(one.cluster)


class _AllHere(Exception):
    """The last job has come."""


def in_the_middle(seed: int) -> Day:
    """The day when the last job has come: much runs, and much waits."""
    grown, works = day(seed, jobs=25)

    def watch(arrived: int, all_of_them: int) -> None:
        if arrived == all_of_them:
            raise _AllHere

    with suppress(_AllHere):
        grown.run(works, watch)
    return grown


@given(SEEDS)
@settings(max_examples=15)
def test_promises_stand_while_nothing_changes_but_time(seed: int) -> None:
    """Two minutes of rounds a second in which nothing comes and nothing ends: no job has its promise taken and given again.

    A start that passes moves a promise, at most once in 30 seconds; a run that could not be stopped before may now be.
    """
    grown = in_the_middle(seed)
    said: Counter[tuple[str, str]] = Counter()
    for second in range(120):
        at = grown.begin + timedelta(microseconds=grown.now_us, seconds=second)
        while events := decide_all(grown.cluster, Tick(at=at, position=grown.records[-1].position)):
            for event in events:
                grown.record(event)
                if isinstance(event, StartPromised | PromiseMoved | PromiseDropped):
                    said[event.job_id, type(event).__name__] += 1

    assert {key: times for key, times in said.items() if times > (5 if key[1] == "PromiseMoved" else 1)} == {}


def test_days_of_floors_hold_borrowers_that_are_stopped() -> None:
    """Else floors would be served because nobody wants more."""
    stopped = 0
    for seed in range(10):
        grown, works = floors_day(seed)
        grown.run(works)
        stopped += sum(life.evictions for life in grown.lives.values())

    assert stopped > 50


def test_days_hold_what_the_laws_are_about() -> None:
    """Jobs are promised, stopped for others, moved, borrow, and shrink."""
    kinds: Counter[str] = Counter()
    for seed in range(60):
        grown = finished(seed)
        for recorded in grown.records:
            kinds[type(recorded.event).__name__] += 1
            match recorded.event:
                case GpusEarmarked(moved=True):
                    kinds["moved"] += 1
                case JobPlaced(shares=shares, job_id=job_id) if (
                    sum(share.slots.bit_count() for share in shares) < grown.lives[job_id].work.spec.gpus
                ):
                    kinds["smaller"] += 1
                case _:
                    pass

    rare = {"GpusEarmarked", "StartPromised", "PromiseMoved", "JobRequeued", "moved", "smaller"}
    assert {kind: kinds[kind] for kind in rare if kinds[kind] < 3} == {}
    assert JobState.QUEUED  # a day may end with jobs that nothing lets run


@pytest.mark.parametrize("seed", [986, 1536, 1770])
def test_a_promised_start_that_comes_is_an_instant_of_its_own(seed: int) -> None:
    """Though nothing ends or arrives then: the job, or those that it kept out, may start. In these days nothing else would come then."""
    grown = finished(seed)
    instants = {sample.at_us for sample in grown.samples}
    starts: dict[str, int] = {}
    for recorded in grown.records:
        now_us = (recorded.at - grown.begin) // timedelta(microseconds=1)
        assert {job_id for job_id, start in starts.items() if start < now_us and start not in instants} == set()
        match recorded.event:
            case StartPromised(job_id=job_id, start=start) | PromiseMoved(job_id=job_id, start=start) if (
                start is not None
            ):
                starts[job_id] = (start - grown.begin) // timedelta(microseconds=1)
            case JobPlaced(job_id=job_id) | PromiseDropped(job_id=job_id) | PromiseMoved(job_id=job_id):
                starts.pop(job_id, None)
            case _:
                pass
