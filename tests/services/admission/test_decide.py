"""Which jobs are let in, in which order, how many, and what is said of the rest."""

from typing import Any

import pytest

from events.base import Event, JobId, TeamId
from events.job import GpusEarmarked, HoldCode, JobAdmitted, JobHeld, JobRejected, JobSpec, Priority
from events.policy import JobOrder
from events.queues import Bounds, Queue, QueueOrder, QueueStop
from projections.cluster.job import JobState
from services.admission.decide import ADMITTED_MAX, decide, spec_fault
from tests.clusters import World, names


def queue(name: str, parent: str = "", **knobs: object) -> Queue:
    """A queue; bounds over all types by their names."""
    of_bounds = {key: knobs.pop(key) for key in list(knobs) if key in Bounds.__struct_fields__}
    bounds = (Bounds(**of_bounds),) if of_bounds else ()  # type: ignore[arg-type]
    return Queue(name=TeamId(name), parent=parent, **{"bounds": bounds, **knobs})  # type: ignore[arg-type]


def admit(world: World) -> list[Event]:
    """What admission alone decides, and is now in the log; it decides nothing more then."""
    events = decide(world.cluster, world.tick())
    assert events == decide(world.cluster, world.tick())
    world.add(*events)
    return events


def settle(world: World) -> list[Event]:
    """The same; and then it decides nothing more."""
    events = admit(world)
    assert decide(world.cluster, world.tick()) == []
    return events


def let_in(events: list[Event]) -> dict[str, bool]:
    """The jobs admitted, in order, and whether they borrow."""
    return {event.job_id: event.borrowing for event in events if isinstance(event, JobAdmitted)}


def held(world: World) -> dict[str, HoldCode]:
    """What the log says of queued jobs."""
    return {job.job_id: job.hold for job in world.cluster.jobs.values() if job.state is JobState.QUEUED}


def test_queued_jobs_are_admitted_in_order_up_to_the_limit_of_a_round() -> None:
    """The rest is the next round's."""
    world = World({"n1": 1})
    for number in range(ADMITTED_MAX + 5):
        world.submit(f"j{number}", 1)

    assert names(admit(world)).count("JobAdmitted") == ADMITTED_MAX
    assert names(admit(world)).count("JobAdmitted") == 5


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (JobSpec(name="a", command=(), gpus=1), "command"),
        (JobSpec(name="a", command=("x",), gpus=0), "0 GPUs"),
        (JobSpec(name="a", command=("x",), gpus=-1), "-1 GPUs"),
        (JobSpec(name="a", command=("x",), gpus=5, nodes=2, gpus_per_node=2), "2 nodes x 2"),
        (JobSpec(name="a", command=("x",), gpus=4, nodes=2), "go together"),
    ],
)
def test_a_job_that_can_run_nowhere_is_rejected_with_the_numbers(spec: JobSpec, word: str) -> None:
    """The gate refuses such specs; a log may hold them all the same."""
    fault = spec_fault(spec)
    assert fault is not None
    assert word in fault


def test_a_rejected_job_is_forgotten() -> None:
    """Terminal: nothing follows."""
    world = World({"n1": 8})
    world.submit("bad", 5, nodes=2, gpus_per_node=2)

    (rejected,) = world.rounds()

    assert isinstance(rejected, JobRejected)
    assert not world.cluster.jobs
    world.assert_sound()


# Within and beyond the entitlement


def test_jobs_within_the_entitlement_are_let_in_and_a_few_beyond_it_to_borrow() -> None:
    """So many of each shape as the policy says; the others are told that enough wait to borrow."""
    world = World({"n1": 8})
    world.policy(admitted_ahead=2)
    for number in range(8):
        world.submit(f"a{number}", 1, team="a")
    world.submit("b0", 4, team="b")

    admitted = let_in(settle(world))

    assert [job for job, borrowing in admitted.items() if not borrowing] == ["a0", "a1", "a2", "a3", "b0"]
    assert [job for job, borrowing in admitted.items() if borrowing] == ["a4", "a5"]
    assert held(world) == {"a6": HoldCode.OVER_ENTITLEMENT, "a7": HoldCode.OVER_ENTITLEMENT}


def test_what_waits_to_borrow_is_counted_by_shape() -> None:
    """Many small ones keep no other shape out."""
    world = World({"n1": 8})
    world.policy(admitted_ahead=1)
    world.submit("b", 4, team="b")
    for number, gpus in enumerate((4, 2, 2, 1, 1)):
        world.submit(f"a{number}", gpus, team="a")

    assert let_in(settle(world)) == {"b": False, "a0": False, "a1": True, "a3": True}


def test_a_team_alone_has_all_its_jobs_let_in() -> None:
    """It borrows from nobody."""
    world = World({"n1": 8})
    world.policy(admitted_ahead=0)
    for number in range(20):
        world.submit(f"a{number}", 1)

    assert list(let_in(settle(world)).values()) == [False] * 20


def test_a_gang_larger_than_its_teams_part_runs_where_there_is_room() -> None:
    """One and a half GPUs each, and jobs of two: an idle cluster is no use to anybody."""
    world = World({"n1": 3})
    world.submit("a", 2, team="a")
    world.submit("b", 2, team="b")

    assert let_in(settle(world)) == {"a": False, "b": True}


def test_a_head_that_finds_no_room_keeps_nobody_from_idle_gpus() -> None:
    """What is not in use is lent, also while its owner waits for more than that."""
    world = World({"n1": 8})
    world.put(world.submit("runs", 3, team="b"), n1=3)
    world.submit("head", 8, team="a")
    world.submit("small", 4, team="b")

    assert let_in(settle(world)) == {"head": True, "small": True}


def test_all_that_fit_are_let_in_by_one_round() -> None:
    """How fast a queue drains is no matter of how many rounds there are."""
    world = World({"n1": 8, "n2": 8})
    world.queues(queue("a"), queue("b"))
    for number in range(8):
        world.submit(f"a{number}", 1, team="a")
        world.submit(f"b{number}", 1, team="b")

    assert list(let_in(settle(world)).values()) == [False] * 16


def test_an_urgent_job_is_within_although_less_urgent_ones_were_let_in_before() -> None:
    """They can be displaced for it."""
    world = World({"n1": 8})
    world.submit("b", 8, team="b")
    world.submit("a0", 4, team="a")
    settle(world)

    world.submit("a1", 4, team="a", priority=Priority.URGENT)
    world.submit("a2", 4, team="a")

    assert let_in(settle(world)) == {"a1": False, "a2": True}


def test_teams_are_let_in_by_age_and_not_by_name() -> None:
    """A team with many jobs does not use up the round."""
    world = World({"n1": 8})
    for number in range(3):
        for team in ("b", "a"):
            world.submit(f"{team}{number}", 1, team=team)

    assert list(let_in(settle(world))) == ["b0", "a0", "b1", "a1", "b2", "a2"]


@pytest.mark.parametrize(
    ("order", "first"),
    [(JobOrder.FAIR, "urgent"), (JobOrder.PRIORITY, "urgent"), (JobOrder.FIFO, "old"), (JobOrder.SJF, "short")],
)
def test_jobs_are_let_in_in_the_order_of_the_policy(order: JobOrder, first: str) -> None:
    """Here all but one are beyond a limit."""
    world = World({"n1": 8})
    world.policy(order=order)
    world.queues(queue("t", limit=1))
    world.submit("old", 1, max_runtime_s=900)
    world.submit("short", 1, max_runtime_s=60)
    world.submit("urgent", 1, priority=Priority.URGENT)

    assert list(let_in(settle(world))) == [first]


def test_what_is_earmarked_for_a_job_is_let_in_at_once() -> None:
    """It was moved: its new place is counted as its team's already."""
    world = World({"n1": 4})
    world.queues(queue("t", limit=4))
    world.put(world.submit("gang", 4), n1=4)
    run = world.run(JobId("gang"))
    assert run is not None
    world.submit("next", 4)
    world.add(
        GpusEarmarked(at=world.at, team=TeamId("t"), job_id=JobId("next"), shares=run.shares, victims=(run.run_id,))
    )

    assert let_in(admit(world)) == {"next": False}


# What stands against a job


def test_limits_count_what_is_let_in_and_waits() -> None:
    """Else a round would let in what the next one must take back."""
    world = World({"n1": 2})
    world.queues(queue("org", limit=3), queue("a", "org"), queue("b", "org"))
    for number in range(3):
        world.submit(f"a{number}", 1, team="a")
        world.submit(f"b{number}", 1, team="b")

    assert list(let_in(settle(world))) == ["a0", "b0", "a1"]
    assert set(held(world).values()) == {HoldCode.OVER_LIMIT}


@pytest.mark.parametrize(
    ("spec", "knobs", "code"),
    [
        ({"gpus": 9}, {}, HoldCode.EXCEEDS_CLUSTER),
        ({"gpus": 1, "gpu_types": ("b200",)}, {}, HoldCode.NO_SUCH_GPU),
        ({"gpus": 3}, {"limit": 2}, HoldCode.EXCEEDS_LIMIT),
        ({"gpus": 9}, {"limit": 2}, HoldCode.EXCEEDS_CLUSTER),
        ({"gpus": 9}, {"stop": QueueStop.PAUSE}, HoldCode.QUEUE_PAUSED),
        ({"gpus": 5, "preemptible": False}, {}, HoldCode.EXCEEDS_FLOOR),
        ({"gpus": 1}, {"running_max": 0}, HoldCode.RUNNING_MAX),
        ({"gpus": 1}, {"limit": 0}, HoldCode.EXCEEDS_LIMIT),
    ],
)
def test_a_job_that_may_not_run_is_told_the_gravest_reason(
    spec: dict[str, Any], knobs: dict[str, Any], code: HoldCode
) -> None:
    """And is not let in, whatever is free."""
    world = World({"n1": 8})
    world.queues(queue("t", **knobs), queue("other"))
    world.submit("a", team="t", **spec)

    assert [event.code for event in settle(world) if isinstance(event, JobHeld)] == [code]
    assert held(world) == {"a": code}


def test_what_cannot_be_preempted_waits_for_the_floor_and_holds_up_nobody() -> None:
    """Others of the same shape are let in, to borrow."""
    world = World({"n1": 8})
    world.queues(queue("t"), queue("other"))
    for number in range(3):
        world.submit(f"firm{number}", 2, preemptible=False)
    world.submit("mild", 2)

    assert let_in(settle(world)) == {"firm0": False, "firm1": False, "mild": False}
    assert held(world) == {"firm2": HoldCode.OVER_FLOOR}


def test_impossible_jobs_take_nothing_from_what_others_are_entitled_to() -> None:
    """Not even in the round that finds them."""
    world = World({"n1": 8})
    world.submit("huge", 500, team="a")
    for number in range(2):
        world.submit(f"b{number}", 4, team="b")

    assert let_in(settle(world)) == {"b0": False, "b1": False}


def test_a_job_that_becomes_possible_is_let_in() -> None:
    """Age kept, and nothing to be said before."""
    world = World({"n1": 8})
    world.submit("large", 16)
    settle(world)
    assert held(world) == {"large": HoldCode.EXCEEDS_CLUSTER}

    world.join("n2", 8)

    assert let_in(settle(world)) == {"large": False}


def test_a_reason_that_is_gone_lets_the_jobs_in() -> None:
    """A limit that is raised; a queue that goes on."""
    world = World({"n1": 8})
    world.queues(queue("a", limit=0), queue("b", stop=QueueStop.PAUSE))
    world.submit("a0", 1, team="a")
    world.submit("b0", 1, team="b")
    assert let_in(settle(world)) == {}

    world.queues(queue("a"), queue("b"))

    assert let_in(settle(world)) == {"a0": False, "b0": False}


def test_a_hundred_thousand_alike_are_one_look() -> None:
    """The head of a line that is blocked stands for all behind it: what is said is bounded, and so is what is looked at."""
    world = World({"n1": 8})
    world.queues(queue("t", limit=0))
    for number in range(3_000):
        world.submit(f"j{number}", 1)
    looked_at: list[str] = []
    jobs = world.cluster.jobs

    class Watched(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> object:
            looked_at.append(key)
            return jobs[JobId(key)]

    world.cluster.jobs = Watched(jobs)
    decide(world.cluster, world.tick())

    assert len(looked_at) <= 1 + 500


# Strict and best effort


def strict(order: QueueOrder) -> World:
    """A queue whose first job is beyond its limit in one type; more of both types behind it."""
    world = World({"n1": 8})
    world.join("m1", 8, gpu_type="a100")
    bounds = (Bounds(gpu_type="h100", limit=4),)
    world.queues(Queue(name=TeamId("t"), bounds=bounds, order=order))
    world.put(world.submit("runs", 2, gpu_types=("h100",)), n1=2)
    world.submit("first", 4, gpu_types=("h100",))
    world.submit("small", 1, gpu_types=("h100",))
    world.submit("other", 1, gpu_types=("a100",))
    return world


def test_in_a_best_effort_queue_a_smaller_one_goes_first() -> None:
    """Nobody waits for one that may not run yet."""
    world = strict(QueueOrder.BEST_EFFORT)

    assert set(let_in(settle(world))) == {"small", "other"}


def test_in_a_strict_queue_those_behind_wait_unless_they_want_another_type() -> None:
    """Each GPU type has its own line."""
    world = strict(QueueOrder.STRICT)

    assert set(let_in(settle(world))) == {"other"}
    assert held(world) == {"first": HoldCode.OVER_LIMIT, "small": HoldCode.BEHIND}


def test_a_job_that_can_never_run_holds_up_no_strict_queue() -> None:
    """Only what may run one day is worth waiting for."""
    world = strict(QueueOrder.STRICT)
    world.cancel(JobId("first"))
    world.submit("never", 5, gpu_types=("h100",), priority=Priority.URGENT)

    assert set(let_in(admit(world))) == {"small", "other"}
    assert held(world)["never"] is HoldCode.EXCEEDS_LIMIT


# Back-off


def failed(world: World) -> None:
    """The job `a` of team `t` lost its node and is in its back-off; the node is back."""
    world.put(world.submit("a", 8), n1=8)
    world.join("n1", 8)
    world.rounds()
    assert world.cluster.jobs[JobId("a")].not_before is not None


def test_a_job_is_let_in_when_its_back_off_is_over() -> None:
    """And not before."""
    world = World({"n1": 8})
    failed(world)
    assert settle(world) == []

    world.wait(2)

    assert let_in(settle(world)) == {"a": False}


def test_one_whose_back_off_is_over_and_that_may_not_run_stands_in_its_line_again() -> None:
    """What it wants counts from then on, and it is looked at with those like it."""
    world = World({"n1": 8})
    failed(world)
    world.queues(queue("t", limit=0))
    world.wait(2)

    settle(world)

    assert held(world) == {"a": HoldCode.EXCEEDS_LIMIT}
    assert not list(world.cluster.later.line(None))


def test_where_a_floor_is_laid_makes_no_job_too_large_by_its_own_wish() -> None:
    """Wanted on h100, the floor is laid there, where `org` leaves room for two; not wanted, on a100, where three would fit.

    So the job is over the floor for now, and not larger than it: it stays wanted, and nothing goes back and forth.
    """
    world = World({"n1": 10, "n2": 10})
    world.join("m1", 11, gpu_type="a100")
    of_org = (Bounds(gpu_type="h100", floor=2),)
    world.queues(queue("org", bounds=of_org), queue("t", "org", floor=3), queue("u", "org", floor=1), queue("v"))
    world.submit("other", 12, team="t", gpu_types=("h100",), preemptible=False)
    job = world.submit("job", 3, team="t", preemptible=False)
    world.submit("of-v", 1, team="v", gpu_types=("h100",))

    settle(world)
    assert held(world) == {"other": HoldCode.EXCEEDS_FLOOR, "job": HoldCode.OVER_FLOOR}
    world.add(JobHeld(at=world.at, team=TeamId("t"), job_id=job, code=HoldCode.EXCEEDS_FLOOR))  # as it may be in a log
    settle(world)
    assert held(world)["job"] is HoldCode.OVER_FLOOR
