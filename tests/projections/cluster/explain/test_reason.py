"""Every reason, in a cluster where it holds: its code, its numbers, and who is in the way."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from events.ask import Basis, Tier, Why
from events.base import JobId, NodeId, TeamId, run_id_of
from events.fleet import NodeSuspected
from events.job import (
    Checkpoint,
    Domain,
    GpusEarmarked,
    HoldCode,
    JobAdmitted,
    JobHeld,
    JobRequeued,
    NodeShare,
    Priority,
    RunStopping,
    StartPromised,
    StopCause,
    Topology,
)
from events.operator import NodeCordoned
from events.queues import Bounds, Queue, QueueOrder, QueueStop
from projections.cluster.explain.why import explain
from tests.clusters import World
from tests.projections.cluster.explain.shown import Shown
from tests.projections.cluster.explain.unpaid import credits_, no_account, no_price


def admit(world: World, job: JobId, *, borrowing: bool = False) -> JobId:
    """The job may run."""
    world.add(JobAdmitted(at=world.at, team=world.cluster.jobs[job].team, job_id=job, borrowing=borrowing))
    return job


def shares(world: World, **slots: int) -> tuple[NodeShare, ...]:
    """These slots of these nodes."""
    nodes = world.cluster.nodes
    return tuple(NodeShare(NodeId(name), nodes[NodeId(name)].epoch, mask) for name, mask in sorted(slots.items()))  # type: ignore[arg-type]


def promise(world: World, job: JobId, *, in_s: float | None, **slots: int) -> None:
    """These slots drain towards the job."""
    start = world.at + timedelta(seconds=in_s) if in_s is not None else None
    team = world.cluster.jobs[job].team
    world.add(StartPromised(at=world.at, team=team, job_id=job, shares=shares(world, **slots), start=start))


def full(**nodes: int) -> World:
    """A cluster whose nodes run a job each, named after them."""
    world = World(nodes)
    for name, gpus in nodes.items():
        world.put(world.submit(f"on-{name}", gpus), **{name: gpus})
    return world


def not_evaluated() -> Shown:
    """Nothing stands against it."""
    world = World({"n1": 4})
    return Shown(
        world, world.submit("job", 2), "2 GPUs would fit: the next round places it, or a job before it",
        {"basis": Basis.NEXT_ROUND, "estimated_start": world.at},
    )  # fmt: skip


def queue_paused() -> Shown:
    """By the queue above its own."""
    world = World({"n1": 4})
    world.queues(Queue(name="org", stop=QueueStop.HOLD), Queue(name="t", parent="org"))  # type: ignore[arg-type]
    return Shown(
        world, world.submit("job", 99), "queue org is on hold: nothing in it runs until an operator resumes it",
        {"queue": "org", "next_action": "ask an operator to resume queue org"},
    )  # fmt: skip


def backing_off() -> Shown:
    """Its run failed a moment ago."""
    world = full(n1=4)
    job = JobId("on-n1")
    ids: dict[str, Any] = {"at": world.at, "team": "t", "job_id": job, "run_id": run_id_of(job, 1)}
    world.end(job, code=1)
    world.add(RunStopping(**ids, cause=StopCause.RANK_FAILED))
    world.release(job)
    world.add(JobRequeued(**ids, cause=StopCause.RANK_FAILED, not_before=world.at + timedelta(seconds=7)))
    return Shown(
        world, job, "attempt 1 failed; the next is not before 7 s from now",
        {"basis": Basis.BACK_OFF, "estimated_start": world.at + timedelta(seconds=7)},
    )  # fmt: skip


def failed_too_often() -> Shown:
    """A node was lost, and no failure of that kind is retried; its queue is paused besides."""
    world = World({"n1": 4})
    job = world.submit("job", 4, retries_infrastructure=0)
    world.rounds()
    world.round({NodeId("n1"): 1_000.0})
    world.rounds()
    world.queues(Queue(name=TeamId("t"), stop=QueueStop.PAUSE))
    return Shown(
        world, job, "it was ended once by failures that are not its own, of which 0 are retried",
        {
            "basis": Basis.UNKNOWN, "estimate": "somebody has to resume it", "tier": Tier.HELD, "ahead": 0,
            "next_action": "see what ended it (muster job job), then muster resume job",
        },
    )  # fmt: skip


def no_such_gpu() -> Shown:
    """Another type."""
    world = World({"n1": 4})
    return Shown(
        world, world.submit("job", 1, gpu_types=("b200",)), "no node has a GPU of type b200; known types: h100",
        {"basis": Basis.UNKNOWN, "entitled": 0},
    )  # fmt: skip


def no_such_node() -> Shown:
    """Labels that are nowhere, and a taint."""
    world = World({"n1": 4})
    world.join("n2", 4, labels={"fabric": "ib"}, taints=("slow",))
    return Shown(
        world, world.submit("job", 1, labels={"fabric": "ib"}),
        "needs 1 GPU labelled fabric=ib; none of 2 nodes with such GPUs has the labels fabric=ib;"
        " taints that it does not tolerate: slow",
        {},
    )  # fmt: skip


def exceeds_cluster() -> Shown:
    """More than all there is."""
    world = World({"n1": 4})
    message = "needs 12 GPUs; all nodes together have 4, free or not (1 node)"
    return Shown(world, world.submit("job", 12), message, {"ahead": 0})


def exceeds_domain() -> Shown:
    """Two racks of one node each."""
    world = World()
    for number in (1, 2):
        world.join(f"n{number}", 8, labels={"rack": f"r{number}", "spine": "s"})
    job = world.submit("job", 16, topology=Topology(within=Domain.RACK))
    message = "needs 16 GPUs within a rack; the largest rack has 8, free or not"
    return Shown(world, job, message, {})


def limited(**bounds: int) -> World:
    """A cluster in which `t` has bounds, and another team is there."""
    world = World({"n1": 8, "n2": 8})
    world.queues(
        Queue(name="t", bounds=(Bounds(gpu_type="h100", **bounds),)), Queue(name="other")  # type: ignore[arg-type]
    )  # fmt: skip
    return world


def exceeds_limit() -> Shown:
    """Larger than the limit."""
    world = limited(limit=4)
    message = "needs 8 GPUs; queue t may have 4 at the most"
    return Shown(world, world.submit("job", 8), message, {"queue": "t", "limit": 4})


def exceeds_floor() -> Shown:
    """Not to be preempted, and larger than what is sure."""
    world = limited(floor=4)
    job = world.submit("job", 8, preemptible=False)
    message = "needs 8 GPUs and cannot be preempted; queue t has 4 for sure"
    return Shown(world, job, message, {"queue": "t", "limit": 4})


def over_limit() -> Shown:
    """The limit is in use."""
    world = limited(limit=4)
    world.put(world.submit("first", 3), n1=3)
    message = "needs 2 GPUs; queue t uses 3 of the 4 GPUs of its limit"
    return Shown(world, world.submit("job", 2), message, {"queue": "t", "limit": 4, "blockers": ("first",), "used": 3})


def over_floor() -> Shown:
    """The floor is in use by others that cannot be preempted."""
    world = limited(floor=4)
    world.put(world.submit("first", 3, preemptible=False), n1=3)
    message = "needs 2 GPUs and cannot be preempted; others of that kind use 3 of the 4 GPUs that queue t has for sure"
    return Shown(world, world.submit("job", 2, preemptible=False), message, {"queue": "t", "limit": 4})


def over_entitlement() -> Shown:
    """Another team wants its share, and one job waits to borrow already."""
    world = limited()
    world.policy(admitted_ahead=1)
    world.put(world.submit("mine", 8), n1=8)
    world.submit("theirs", 16, team="other")
    admit(world, world.submit("ahead", 8), borrowing=True)
    message = "needs 8 GPUs; team t has 8 of the 8 h100 GPUs that it may claim now, and 1 job of this shape waits to borrow more"
    return Shown(world, world.submit("job", 8), message, {"entitled": 8, "used": 8, "blockers": ("mine",)})


def running_max() -> Shown:
    """One job at a time."""
    world = World({"n1": 8})
    world.queues(Queue(name="t", running_max=1))  # type: ignore[arg-type]
    world.put(world.submit("first", 1), n1=1)
    message = "queue t runs 1 jobs, and may run 1 at once"
    return Shown(world, world.submit("job", 1), message, {"queue": "t", "limit": 1, "blockers": ("first",)})


def behind() -> Shown:
    """A strict queue, and one before it that is beyond its limit."""
    world = World({"n1": 8})
    bounds = (Bounds(gpu_type="h100", limit=4),)
    world.queues(Queue(name="t", order=QueueOrder.STRICT, bounds=bounds))  # type: ignore[arg-type]
    world.put(world.submit("runs", 3), n1=3)
    world.submit("first", 2)
    message = "first is before it and may not run yet; queue t is strict: nothing passes it"
    return Shown(
        world, world.submit("job", 1), message, {"behind": "first", "next_action": "wait for first: muster why first"}
    )


def nodes_unwell() -> Shown:
    """One is suspect, one cordoned."""
    world = World({"n1": 8, "n2": 8, "n3": 8})
    node = world.cluster.nodes[NodeId("n1")]
    world.add(NodeSuspected(at=world.at, node_id=node.node_id, node_epoch=node.epoch, silent_s=31.0))
    world.add(NodeCordoned(at=world.at, node_id=NodeId("n2")))
    job = admit(world, world.submit("job", 16))
    return Shown(
        world, job, "needs 16 GPUs; 2 of 3 nodes are suspect, lost, cordoned or drained", {"basis": Basis.UNKNOWN}
    )


def no_room() -> Shown:
    """Both nodes are in use; one run declares its end."""
    world = World({"n1": 8, "n2": 8})
    world.put(world.submit("long", 8), n1=8)
    world.put(world.submit("short", 4, max_runtime_s=600, stop_grace_s=10), n2=4)
    job = admit(world, world.submit("job", 8))
    return Shown(
        world, job, "needs 8 GPUs; 4 of 16 are free (4 at most on one node, 0 whole nodes)",
        {"blockers": ("long", "short"), "basis": Basis.DECLARED_ENDS, "estimated_start": world.at + timedelta(seconds=610)},
    )  # fmt: skip


def scattered() -> Shown:
    """Eight are free, four on each."""
    world = World({"n1": 8, "n2": 8})
    for node in ("n1", "n2"):
        world.put(world.submit(f"on-{node}", 4), **{node: 4})
    job = admit(world, world.submit("job", 8))
    return Shown(
        world, job,
        "needs 8 GPUs; 8 of 16 are free (4 at most on one node, 0 whole nodes): enough, but in pieces that do not hold it",
        {
            "blockers": ("on-n1", "on-n2"), "basis": Basis.UNKNOWN,
            "estimate": "2 of the runs on the nodes it could use have not declared a max_runtime",
        },
    )  # fmt: skip


def reserved() -> Shown:
    """What is free drains towards a gang."""
    world = World({"n1": 8, "n2": 8})
    world.put(world.submit("runs", 8, max_runtime_s=600), n1=8)
    gang = admit(world, world.submit("gang", 16))
    promise(world, gang, in_s=610, n1=255, n2=255)
    job = admit(world, world.submit("job", 8))
    return Shown(
        world, job,
        "needs 8 GPUs; 8 of 16 are free (8 at most on one node, 1 whole node),"
        " but they are promised to gang for 00:10:10 UTC",
        {"behind": "gang", "blockers": ("gang",), "ahead": 1},
    )  # fmt: skip


def waits_for_preempted() -> Shown:
    """Half is free already; the victim may take 40 seconds."""
    world = World({"n1": 8, "n2": 8})
    victim = world.put(world.submit("victim", 8, stop_grace_s=10, checkpoint=Checkpoint(grace_s=30)), n1=8)
    job = admit(world, world.submit("job", 16, team="u"))
    world.add(
        GpusEarmarked(
            at=world.at, team=world.cluster.jobs[job].team, job_id=job, shares=shares(world, n1=255, n2=255),
            victims=(run_id_of(victim, 1),),
        )
    )  # fmt: skip
    return Shown(
        world, job, "16 GPUs are set aside for it, 8 of 16 free; victim is being stopped for it",
        {
            "preempting": ("victim",), "reserved": ("n1", "n2"), "basis": Basis.PREEMPTED,
            "estimated_start": world.at + timedelta(seconds=40), "blockers": ("victim",),
        },
    )  # fmt: skip


def promised() -> Shown:
    """From declared runtimes."""
    world = World({"n1": 8, "n2": 8})
    world.put(world.submit("runs", 8, max_runtime_s=600), n1=8)
    job = admit(world, world.submit("job", 16))
    promise(world, job, in_s=610, n1=255, n2=255)
    return Shown(
        world, job,
        "needs 16 GPUs; 2 nodes drain towards it: 8 of 16 GPUs are free; its start is promised for 00:10:10 UTC",
        {
            "reserved": ("n1", "n2"), "basis": Basis.PROMISE, "estimated_start": world.at + timedelta(seconds=610),
            "blockers": ("runs",),
        },
    )  # fmt: skip


CASES: list[Callable[[], Shown]] = [
    not_evaluated, queue_paused, backing_off, failed_too_often, no_such_gpu, no_such_node, exceeds_cluster, exceeds_domain, exceeds_limit,
    exceeds_floor, over_limit, over_floor, over_entitlement, running_max, no_account, no_price, credits_, behind,
    nodes_unwell, no_room, scattered, reserved, waits_for_preempted, promised,
]  # fmt: skip


def test_every_code_has_a_case() -> None:
    """One that is added is told of here."""
    assert [case.__name__.rstrip("_") for case in CASES] == [code.value for code in HoldCode]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.rstrip("_"))
def test_each_reason_has_its_numbers(case: Callable[[], Shown]) -> None:
    """The code, the sentence, and what goes with it."""
    shown = case()
    why = explain(shown.world.cluster, shown.job, at=shown.world.at)
    assert (why.code, why.message) == (case.__name__.rstrip("_"), shown.message)
    assert {name: getattr(why, name) for name in shown.says} == shown.says
    assert why.next_action
    assert why.estimate
    assert (why.basis == Basis.UNKNOWN) == (why.estimated_start is None)


def of(world: World, job: str) -> Why:
    """The explanation of the moment."""
    return explain(world.cluster, JobId(job), at=world.at)


def test_a_borrowing_limit_is_called_by_its_name() -> None:
    """The number is floor and borrowing limit together, which is in no document."""
    world = limited(floor=2, borrowing_limit=2, limit=6)
    world.put(world.submit("first", 3), n1=3)
    world.submit("small", 2)
    world.submit("large", 5)
    small, large = of(world, "small"), of(world, "large")
    assert small.message == "needs 2 GPUs; queue t uses 3 of the 4 GPUs of its floor and borrowing_limit"
    assert small.next_action.endswith("raise its borrowing_limit")
    assert (large.code, large.limit) == ("exceeds_limit", 4)
    assert large.next_action.endswith("raise the borrowing_limit of queue t")


def test_the_gravest_reason_is_the_one_told() -> None:
    """Paused before too large, too large before over the limit, over the limit before no room."""
    world = limited(limit=4)
    world.put(world.submit("first", 4), n1=4)
    world.submit("small", 2)
    world.submit("large", 8)
    world.submit("huge", 64)
    assert [of(world, job).code for job in ("small", "large", "huge")] == [
        "over_limit",
        "exceeds_limit",
        "exceeds_cluster",
    ]
    world.queues(Queue(name="t", stop=QueueStop.PAUSE))  # type: ignore[arg-type]
    assert {of(world, job).code for job in ("small", "large", "huge")} == {"queue_paused"}
    assert of(world, "small").tier == Tier.HELD
    assert "paused: nothing new in it starts" in of(world, "huge").message


def test_a_job_that_would_be_gone_before_a_promised_start_is_not_held_up() -> None:
    """One that declares nothing, or too much, is."""
    shown = reserved()
    world = shown.world
    short = admit(world, world.submit("short", 8, max_runtime_s=60))
    long = admit(world, world.submit("long", 8, max_runtime_s=700))
    assert (of(world, short).code, of(world, long).code) == ("not_evaluated", "reserved")
    assert of(world, shown.job).next_action.startswith("declare a max_runtime")
    assert "shorter" in of(world, long).next_action


KNOBS: list[tuple[dict[str, Any], int, str]] = [
    ({"stop": QueueStop.PAUSE}, 4, "queue_paused"),
    ({"bounds": (Bounds(gpu_type="h100", limit=2),)}, 4, "exceeds_limit"),
    ({"bounds": (Bounds(gpu_type="h100", limit=6),)}, 4, "over_limit"),
    ({"bounds": (Bounds(limit=6),)}, 4, "over_limit"),
    ({"bounds": (Bounds(gpu_type="h100", floor=4, borrowing_limit=2),)}, 4, "over_limit"),
    ({"running_max": 1}, 4, "running_max"),
]


@pytest.mark.parametrize(("knob", "gpus", "code"), KNOBS)
def test_each_knob_of_a_queue_has_its_effect_and_without_it_none(knob: dict[str, Any], gpus: int, code: str) -> None:
    """On the queue itself, and on the one above it (koordinator#2288)."""
    world = World({"n1": 16})
    world.put(world.submit("first", 4), n1=4)
    world.submit("job", gpus)
    for queues in (
        (Queue(name=TeamId("t"), **knob),),
        (Queue(name=TeamId("up"), **knob), Queue(name=TeamId("t"), parent="up")),
    ):
        world.queues(*queues)
        answer = of(world, "job")
        assert (answer.code, answer.queue) == (code, queues[0].name)
        world.queues(Queue(name=TeamId("t")))
        assert of(world, "job").code == "not_evaluated"


def test_what_the_log_last_said_of_a_job_does_not_outlive_its_cause() -> None:
    """The reason is worked out from how things are."""
    world = World({"n1": 8})
    job = world.submit("job", 8)
    world.add(JobHeld(at=world.at, team=world.cluster.jobs[job].team, job_id=job, code=HoldCode.EXCEEDS_CLUSTER))
    assert of(world, job).code == "not_evaluated"


def test_an_admitted_job_behind_one_that_cannot_start_is_behind_it() -> None:
    """Where the policy is blocking; not one that wants another type, or that is before it."""
    world = World({"n1": 8})
    world.join("a1", 8, gpu_type="a100")
    world.put(world.submit("runs", 4), n1=4)
    world.policy(blocking=True)
    gang = admit(world, world.submit("gang", 8, gpu_types=("h100",)))
    world.add(JobHeld(at=world.at, team=world.cluster.jobs[gang].team, job_id=gang, code=HoldCode.NO_ROOM))
    small = admit(world, world.submit("small", 1, gpu_types=("h100",)))
    other = admit(world, world.submit("other", 1, gpu_types=("a100",)))
    urgent = admit(world, world.submit("urgent", 1, gpu_types=("h100",), priority=Priority.URGENT))
    codes = {job: of(world, job).code for job in (gang, small, other, urgent)}
    assert codes == {gang: "no_room", small: "behind", other: "not_evaluated", urgent: "not_evaluated"}
    assert (of(world, small).behind, of(world, small).tier) == (gang, Tier.OVER_QUOTA)
    assert "the policy is blocking" in of(world, small).message
