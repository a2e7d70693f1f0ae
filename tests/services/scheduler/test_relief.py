"""Who is stopped where a limit is in the way: own less urgent runs, as many as it is short; and no limit is ever passed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from events.base import JobId, TeamId
from events.job import GpusEarmarked, HoldCode, JobAdmitted, JobPlaced, Priority
from events.node import EndReason
from events.policy import JobOrder
from events.queues import Bounds, Queue
from projections.cluster.explain.why import explain
from projections.cluster.job import JobState
from projections.cluster.quota.entitlement import Standing
from tests.clusters import World, names

LOW: Final[dict[str, Any]] = {"priority": Priority.LOW}
URGENT: Final[dict[str, Any]] = {"priority": Priority.URGENT}


def world(*queues: Queue, nodes: dict[str, int] | None = None, **policy: Any) -> World:
    """Two nodes of 8, and a policy under which everything may be tried."""
    made = World(nodes or {"n1": 8, "n2": 8})
    made.policy(**({"min_runtime_s": 0, "cool_down_s": 0} | policy))
    made.queues(*queues)
    return made


def running(made: World, *gpus: int, team: str = "t", name: str = "low", **spec: Any) -> None:
    """So many jobs of a team run, for an hour."""
    for number, size in enumerate(gpus):
        made.submit(f"{name}{number}", size, team=team, **(LOW | spec))
    made.rounds()
    for number in range(len(gpus)):
        made.start(JobId(f"{name}{number}"))
    made.at += timedelta(hours=1)
    made.rounds()


def victims(made: World) -> list[str]:
    """The jobs that rounds now stop, sorted."""
    earmarked = [event for event in made.rounds() if isinstance(event, GpusEarmarked)]
    return sorted(run_id.rpartition("-")[0] for event in earmarked for run_id in event.victims)


def gone(made: World, *jobs: str) -> list[str]:
    """These have stopped; what rounds then place."""
    for name in jobs:
        made.end(JobId(name), reason=EndReason.STOPPED)
        made.release(JobId(name))
    return [event.job_id for event in made.rounds() if isinstance(event, JobPlaced)]


def code(made: World, job: str) -> HoldCode:
    """What the log says of a job, which is what `why` says."""
    said = made.cluster.jobs[JobId(job)].hold
    assert explain(made.cluster, JobId(job), at=made.at).code == said.value
    return said


def t(**knobs: Any) -> tuple[Queue, ...]:
    """Queue t, with these knobs."""
    return (Queue(name=TeamId("t"), **knobs),)


def up(**knobs: Any) -> tuple[Queue, ...]:
    """Queue t below one with these knobs."""
    return Queue(name=TeamId("up"), **knobs), Queue(name=TeamId("t"), parent="up")


KNOBS: list[tuple[dict[str, Any], list[str]]] = [
    ({"bounds": (Bounds(limit=8),)}, ["low0", "low1"]),
    ({"bounds": (Bounds(gpu_type="h100", limit=8),)}, ["low0", "low1"]),
    ({"bounds": (Bounds(floor=2, borrowing_limit=6),)}, ["low0", "low1"]),
    ({"bounds": (Bounds(limit=10),)}, ["low0"]),
    ({"bounds": (Bounds(limit=11),)}, ["low0"]),
    ({"bounds": (Bounds(limit=12),)}, []),
    ({"running_max": 4}, ["low0"]),
    ({"running_max": 5}, []),
    ({"running_max": 4, "bounds": (Bounds(limit=10),)}, ["low0"]),
]


@pytest.mark.parametrize("queues", [t, up], ids=["own", "above"])
@pytest.mark.parametrize(("knobs", "stopped"), KNOBS)
def test_as_many_are_stopped_as_a_limit_is_short(
    queues: Callable[..., tuple[Queue, ...]], knobs: dict[str, Any], stopped: list[str]
) -> None:
    """There is room beside them all the time; the urgent job starts when the last that had to end has ended, not before."""
    made = world(*queues(**knobs))
    running(made, 2, 2, 2, 2)
    made.submit("new", 4, **URGENT)

    assert victims(made) == stopped
    for number, name in enumerate(stopped):
        assert code(made, "new") is HoldCode.WAITS_FOR_PREEMPTED
        assert gone(made, name) == (["new"] if number == len(stopped) - 1 else [])
    assert made.cluster.jobs[JobId("new")].state is JobState.PLACED
    assert made.round() == []
    made.assert_sound()


def _equals(made: World) -> None:
    running(made, 4, 4, **URGENT)


def _not_preemptible(made: World) -> None:
    running(made, 4, 4, preemptible=False)


def _too_young(made: World) -> None:
    made.policy(min_runtime_s=7200)
    running(made, 4, 4)


def _at_their_cap(made: World) -> None:
    made.policy(min_runtime_s=0, evictions_max=0)
    running(made, 4, 4)


def _without_preemption(made: World) -> None:
    made.policy(preemption=False, min_runtime_s=0)
    running(made, 4, 4)


@pytest.mark.parametrize("prepare", [_equals, _not_preemptible, _too_young, _at_their_cap, _without_preemption])
@pytest.mark.parametrize(
    ("knobs", "said"),
    [({"bounds": (Bounds(limit=8, floor=8),)}, HoldCode.OVER_LIMIT), ({"running_max": 2}, HoldCode.RUNNING_MAX)],
)
def test_where_nobody_may_be_stopped_the_limit_is_the_reason(
    prepare: Callable[[World], None], knobs: dict[str, Any], said: HoldCode
) -> None:
    """Admitted or not; and rounds have nothing to add."""
    made = world(*t(**knobs))
    prepare(made)
    made.submit("new", 4, **URGENT)

    assert victims(made) == []
    assert code(made, "new") is said
    assert made.round() == []


def test_the_least_lost_are_stopped_and_nobody_in_vain() -> None:
    """A run of 4 does what two of 2 would; one that began a moment ago loses least."""
    made = world(*t(bounds=(Bounds(limit=8),)))
    running(made, 2, 2)
    running(made, 4, name="late")
    made.submit("new", 3, **URGENT)

    assert victims(made) == ["late0"]


def test_a_victim_that_turns_out_not_to_be_needed_runs_on() -> None:
    """The small one is the cheapest and taken first; it is not enough, and beside the large one it is too much."""
    made = world(*t(bounds=(Bounds(limit=9),)))
    running(made, 8)
    running(made, 1, name="late")
    made.submit("new", 4, **URGENT)

    assert victims(made) == ["low0"]


def test_runs_on_other_types_count_where_the_limit_is_over_all() -> None:
    """There the job takes free GPUs of its own type; where the limit is of its type they are left alone."""
    for bounds, stopped in ((Bounds(limit=8), ["low0"]), (Bounds(gpu_type="h100", limit=2), [])):
        made = world(*t(bounds=(bounds,)), nodes={"n1": 8})
        made.join("a1", 8, gpu_type="a100")
        running(made, 8, gpu_types=("a100",))
        made.submit("new", 2, gpu_types=("h100",), **URGENT)

        assert victims(made) == stopped
        made.assert_sound()


def test_room_and_limit_are_made_by_the_same_runs() -> None:
    """On full nodes, own runs before those of a team that has too much: they count against both."""
    made = world(*t(bounds=(Bounds(limit=8),)), Queue(name=TeamId("u")))
    running(made, 8, name="other", team="u")
    running(made, 4, 4)
    made.submit("new", 4, **URGENT)

    assert victims(made) == ["low0"]
    assert gone(made, "low0") == ["new"]


def test_what_a_sibling_has_too_much_of_makes_way_below_a_full_queue() -> None:
    """The queue above is at its limit, half the cluster is free, and one of its teams has all of what both may claim."""
    above = Queue(name=TeamId("up"), bounds=(Bounds(limit=8),))
    made = world(above, Queue(name=TeamId("t"), parent="up"), Queue(name=TeamId("u"), parent="up"))
    running(made, 2, 2, 2, 2, priority=Priority.NORMAL)
    for number in range(3):
        made.submit(f"new{number}", 2, team="u")

    assert victims(made) == ["low0", "low1"], "its share is 4"
    assert gone(made, "low0", "low1") == ["new0", "new1"]
    assert code(made, "new2") is HoldCode.OVER_LIMIT
    made.assert_sound()


def test_who_waits_gives_way_in_an_order_by_class_only() -> None:
    """The limit is taken up by a job that was admitted and waits: a more urgent one takes its place, and starts first."""
    for order, first in ((JobOrder.FAIR, "new"), (JobOrder.PRIORITY, "new"), (JobOrder.FIFO, "waits")):
        made = world(*t(bounds=(Bounds(limit=8),)), Queue(name=TeamId("u"), bounds=(Bounds(floor=16),)), order=order)
        running(made, 8, 8, name="other", team="u", preemptible=False)
        made.submit("waits", 8, **LOW)
        made.rounds()
        assert made.cluster.jobs[JobId("waits")].state is JobState.ADMITTED
        made.submit("new", 8, **URGENT)
        made.rounds()
        made.wait(60)
        made.rounds()

        second = "waits" if first == "new" else "new"
        assert code(made, second) is HoldCode.OVER_LIMIT
        made.end(JobId("other0"))
        assert gone(made, "other0")[0] == first
        assert made.round() == []


def test_two_urgent_jobs_have_victims_of_their_own() -> None:
    """Each brings the queue within its limit; a third finds it full of equals. The first starts when there is enough."""
    made = world(*t(bounds=(Bounds(limit=8),)))
    running(made, 2, 2, 2, 2)
    for number in range(3):
        made.submit(f"new{number}", 4, **URGENT)

    assert victims(made) == ["low0", "low1", "low2", "low3"]
    assert code(made, "new2") is HoldCode.OVER_LIMIT
    assert gone(made, "low2") == []
    assert gone(made, "low0") == ["new0"]
    assert gone(made, "low1") == []
    assert gone(made, "low3") == ["new1"]
    made.assert_sound()


def test_what_ends_anyway_is_waited_for() -> None:
    """Nobody is stopped where a run of the queue is giving back its GPUs already."""
    made = world(*t(bounds=(Bounds(limit=8),)))
    running(made, 4, 4)
    made.cancel(JobId("low1"))
    made.rounds()
    made.submit("new", 4, **URGENT)

    assert victims(made) == []
    assert gone(made, "low1") == ["new"]


def test_a_limit_that_is_lowered_meanwhile_ends_the_earmark() -> None:
    """What was set aside could not be given out within it any more."""
    made = world(*t(bounds=(Bounds(limit=8),)))
    running(made, 4, 4)
    made.submit("new", 8, **URGENT)
    assert victims(made) == ["low0", "low1"]
    made.queues(*t(bounds=(Bounds(limit=4),)))

    assert "EarmarkDropped" in names(made.rounds())
    assert gone(made, "low0", "low1") != ["new"]
    made.assert_sound()


def test_a_moved_job_counts_once() -> None:
    """Its run and its new place are the same GPUs of the limit; another job may have what is left of that."""
    made = world(*t(bounds=(Bounds(limit=12),)), nodes={"n1": 4, "n2": 4, "n3": 8})
    made.put(made.submit("low0", 4), n1=4)
    made.put(made.submit("gang", 4, team="u"), n2=4)
    made.add(JobAdmitted(at=made.at, team=TeamId("u"), job_id=made.submit("waits", 4, team="u")))
    run, other = made.run(JobId("low0")), made.run(JobId("gang"))
    assert run is not None
    assert other is not None
    for team, job, shares, moved in (("u", "waits", run.shares, (run.run_id,)), ("t", "low0", other.shares, ())):
        ids: dict[str, Any] = {"at": made.at, "team": TeamId(team), "job_id": JobId(job)}
        made.add(GpusEarmarked(**ids, shares=shares, victims=moved, moved=bool(moved)))
    made.submit("new", 8)
    standing = Standing(made.cluster, made.at)

    assert standing.headroom(TeamId("t"), "h100") == 8
    assert [event.job_id for event in made.rounds() if isinstance(event, JobPlaced)] == ["new"]
