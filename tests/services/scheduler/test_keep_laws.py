"""Laws of recovery on random bad days: nobody takes what is kept, all that is kept ends, nobody starves, nodes that failed are left."""

from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from typing import Final

import pytest

from events.base import JobId
from events.fleet import NodeLost
from events.job import EarmarkDropped, GpusEarmarked, JobPlaced, JobRequeued
from events.node import NodeJoined
from projections.cluster.snapshot import dump, load
from tests.services.scheduler.bad_days import BadDay

SEEDS: Final = range(30)
ROUND = timedelta(seconds=5)  # the longest that these days wait between two rounds, and a little


@cache
def bad_day(seed: int) -> BadDay:
    """The day, to its end."""
    day = BadDay(seed)
    day.run()
    return day


def test_these_days_hold_what_the_laws_are_about() -> None:
    """Places that are kept and used again, in part, given up in each way; nodes that are avoided."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        kept: set[JobId] = set()
        for _, event in bad_day(seed).said:
            match event:
                case GpusEarmarked() if event.until is not None:
                    seen["kept"] += 1
                    kept.add(event.job_id)
                case EarmarkDropped() if event.job_id in kept:
                    seen[event.cause] += 1
                    kept.discard(event.job_id)
                case JobPlaced() if event.job_id in kept:
                    seen["used"] += 1
                    kept.discard(event.job_id)
                case JobRequeued():
                    seen["avoided"] += len(event.avoid)
                case _:
                    pass
    assert min(seen[kind] for kind in ("kept", "used", "node", "expired", "avoided")) >= 5, seen


@pytest.mark.parametrize("seed", SEEDS)
def test_every_job_ends_and_the_log_is_sound(seed: int) -> None:
    """Nobody starves for what others keep, and what is set aside for one is given to no other: the auditor looks."""
    day = bad_day(seed)

    assert not day.world.cluster.jobs
    assert not day.world.cluster.earmarks
    assert not day.world.cluster.recovering
    assert not any(node.marked for node in day.world.cluster.nodes.values())
    day.world.assert_sound()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_kept_is_where_the_gang_starts_or_is_given_up_in_time(seed: int) -> None:
    """By its own books: whoever keeps a place starts on just that, or it is anyone's by the time that was said."""
    kept: dict[JobId, GpusEarmarked] = {}
    for at, event in bad_day(seed).said:
        for earmark in kept.values():
            assert earmark.until is not None
            assert at < earmark.until + ROUND, earmark
        match event:
            case GpusEarmarked() if event.until is not None:
                assert event.job_id not in kept
                kept[event.job_id] = event
            case EarmarkDropped():
                kept.pop(event.job_id, None)
            case JobPlaced() if event.job_id in kept:
                assert event.shares == kept.pop(event.job_id).shares
            case _:
                pass
    assert not kept


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_is_not_placed_on_a_node_that_failed_it_while_others_could_hold_it(seed: int) -> None:
    """Counted from the log: nodes that are alive, less those that the job keeps away from.

    What others were stopped for is judged as of then: they were not stopped for nothing.
    """
    day = bad_day(seed)
    avoid_s = day.world.cluster.policy.avoid_s
    alive = set[str]()
    avoids: dict[JobId, dict[str, datetime]] = {}
    taken = set[JobId]()
    for recorded in day.world.records:
        match recorded.event:
            case NodeJoined() as e:
                alive.add(e.node_id)
            case NodeLost() as e:
                alive.discard(e.node_id)
            case JobRequeued() as e:
                until = recorded.at + timedelta(seconds=avoid_s)
                avoids.setdefault(e.job_id, {}).update(dict.fromkeys(e.avoid, until))
            case GpusEarmarked() as e if e.until is None:
                taken.add(e.job_id)
            case EarmarkDropped() as e:
                taken.discard(e.job_id)
            case JobPlaced() as e if e.job_id in taken:
                taken.discard(e.job_id)
            case JobPlaced() as e:
                left = {name for name, until in avoids.get(e.job_id, {}).items() if until > recorded.at}
                others = [day.sizes[name] for name in alive - left]
                largest = max(share.slots.bit_count() for share in e.shares)
                if sum(size >= largest for size in others) >= len(e.shares):
                    assert not left & {share.node_id for share in e.shares}
            case _:
                pass


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_a_snapshot_in_the_middle_of_it_goes_on_alike(seed: int) -> None:
    """What is kept and avoided is in it, with the indexes."""
    day = bad_day(seed)
    loaded = load(dump(day.world.cluster), log_id="test")
    assert loaded is not None
    assert dump(loaded) == dump(day.world.cluster)
