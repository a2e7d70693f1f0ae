"""Laws of evictions over random histories: never in turn, never too often, whole, and each for one job."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

import pytest

from events.base import JobId, RunId, job_id_of
from events.job import GpusEarmarked, JobPlaced, JobRequeued, JobSubmitted, RunStarted, RunStopping, StopCause
from events.policy import PolicySet
from projections.cluster.state import NO_POLICY
from tests.histories import History, history

FOR_OTHERS: Final = (StopCause.PREEMPTED, StopCause.CONSOLIDATED)
SEEDS: Final = range(1, 121, 2)  # those that begin crowded


@pytest.fixture(scope="module")
def grown() -> list[History]:
    """Histories in which jobs are stopped for others."""
    return [history(seed, 200) for seed in SEEDS]


def test_these_histories_hold_evictions_and_moves(grown: list[History]) -> None:
    """The laws below are about something."""
    kinds = sum((each.kinds for each in grown), Counter[str]())

    assert kinds["evicted"] > 40
    assert kinds["moved"] > 5


def evictions(grown: History) -> list[tuple[GpusEarmarked, RunId, datetime, PolicySet]]:
    """Each victim with the decision, when it was made, and by which policy."""
    policy, found = NO_POLICY, []
    for recorded in grown.records:
        match recorded.event:
            case PolicySet() as e:
                policy = e
            case GpusEarmarked() as e:
                found += [(e, run_id, e.at, policy) for run_id in e.victims]
            case _:
                pass
    return found


def test_for_every_two_jobs_evictions_go_one_way_for_ever(grown: list[History]) -> None:
    """Whatever becomes of shares, classes, policies and nodes: no two jobs ever evict each other in turn."""
    for each in grown:
        ways = {(job_id_of(run_id), e.job_id) for e, run_id, _, _ in evictions(each)}
        assert not {(taker, victim) for victim, taker in ways} & ways


def test_evictions_end(grown: list[History]) -> None:
    """Every job has no more of them than the policy of the time allows, and time between them."""
    counts: Counter[tuple[int, JobId]] = Counter()
    last: dict[tuple[int, JobId], datetime] = {}
    for number, run_id, at, policy in ((n, *found[1:]) for n, each in enumerate(grown) for found in evictions(each)):
        job_id = (number, job_id_of(run_id))
        counts[job_id] += 1
        assert counts[job_id] <= policy.evictions_max
        assert job_id not in last or at - last[job_id] >= timedelta(seconds=policy.cool_down_s) - timedelta(minutes=1)
        last[job_id] = at


def test_only_the_preemptible_end_for_others_and_not_before_their_time(grown: list[History]) -> None:
    """Minimum runtime counts from the start of the ranks, or from the placement where they have not started."""
    for each in grown:
        _assert_in_time(each)


def _assert_in_time(each: History) -> None:
    specs = {r.event.job_id: r.event.spec for r in each.records if isinstance(r.event, JobSubmitted)}
    began: dict[RunId, datetime] = {}
    policy = NO_POLICY
    for recorded in each.records:
        match recorded.event:
            case PolicySet() as e:
                policy = e
            case JobPlaced() | RunStarted() as e:
                began[e.run_id] = recorded.at
            case GpusEarmarked() as e:
                for run_id in e.victims:
                    assert specs[job_id_of(run_id)].preemptible
                    assert recorded.at - began[run_id] >= timedelta(seconds=policy.min_runtime_s)
            case _:
                pass


def test_who_was_stopped_for_another_waits_again_without_blame(grown: list[History]) -> None:
    """Each run that stops so was a victim; its job keeps its retries and has no back-off, unless it ended otherwise."""
    for each in grown:
        _assert_without_blame(each)


def _assert_without_blame(each: History) -> None:
    claimed: set[RunId] = set()
    for recorded in each.records:
        match recorded.event:
            case GpusEarmarked() as e:
                assert claimed.isdisjoint(e.victims)
                claimed.update(e.victims)
            case RunStopping(cause=cause) as e if cause in FOR_OTHERS:
                assert e.run_id in claimed
            case JobRequeued(cause=cause) as e if cause in FOR_OTHERS:
                assert e.run_id in claimed
                assert e.not_before == e.at
            case _:
                pass
