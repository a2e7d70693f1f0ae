"""The fold of single events: reports that come twice, late or from other lives, and slots that are for ever."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from events.base import (
    SLOTS_MAX,
    Event,
    GpuUuid,
    JobId,
    NodeEpoch,
    NodeId,
    Position,
    Recorded,
    RunId,
    SlotMask,
    TeamId,
    Unreadable,
)
from events.codec import Codec, Stamp
from events.fleet import NodeLost, NodeRecovered, NodeSuspected
from events.job import JobAdmitted, JobCancelRequested, JobPlaced, NodeShare, OnLost, RunStopping, StopCause
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from events.subjects import family_subject
from projections.cluster.evolve import evolve
from projections.cluster.job import Failure
from projections.cluster.node import NodeState
from projections.cluster.snapshot import dump
from projections.cluster.state import Cluster
from tests.clusters import World
from tests.histories import History, fold, histories

REPORTS = (GpusFoundClean, ShareStarted, ShareEnded, GpusReleased)


def again(cluster: Cluster, *events: Event) -> bytes:
    """The cluster after these came without a place of their own, as bytes; the cluster itself stays."""
    assert cluster.at is not None
    fork = cluster.fork()
    for event in events:
        fork = evolve(fork, Recorded(event, cluster.position, cluster.at))
    return dump(fork)


@given(histories(), st.integers(0, 2**32))
def test_reports_that_come_again_change_nothing(grown: History, seed: int) -> None:
    """Any of them, any number of times, however late, in any order but their own in a pair."""
    before = dump(grown.cluster)
    reports = [recorded.event for recorded in grown.records if isinstance(recorded.event, REPORTS)]
    some = random.Random(seed).choices(reports, k=min(len(reports), 60))
    some += [report for report in some if isinstance(report, GpusReleased)]

    assert again(grown.cluster, *reports) == before
    assert again(grown.cluster, *some) == before


@given(histories())
def test_a_report_twice_in_a_row_is_a_report_once(grown: History) -> None:
    """As when an agent had no answer to its first."""
    doubled: list[Recorded] = []
    for recorded in grown.records:
        doubled += [recorded, recorded] if isinstance(recorded.event, REPORTS) else [recorded]

    assert dump(fold(doubled)) == dump(grown.cluster)


@given(histories(), st.sampled_from((-1, 1)))
def test_what_is_said_of_another_life_changes_nothing(grown: History, by: int) -> None:
    """Reports and judgements of an epoch that the node is not in: of lives before, and of none."""
    nodes = grown.cluster.nodes
    said: list[Event] = []
    for recorded in grown.records:
        match recorded.event:
            case GpusFoundClean() | NodeSuspected() | NodeRecovered() | NodeLost() | GpusReleased() as e:
                said.append(replace(e, node_epoch=NodeEpoch(nodes[e.node_id].epoch + by)))
            case ShareStarted() | ShareEnded() as e:
                run = grown.cluster.runs.get(e.run_id)
                said.append(replace(e, node_epoch=NodeEpoch((run.epoch_on(e.node_id) if run else 1) + by)))
            case _:
                pass

    assert again(grown.cluster, *said) == dump(grown.cluster)


def stale(world: World, name: str, run_id: str) -> list[Event]:
    """All that an agent can say of a run and of its GPUs, from the life before the node's present one."""
    node = world.cluster.nodes[NodeId(name)]
    epoch = next(NodeEpoch(r.position) for r in world.records if isinstance(r.event, NodeJoined))
    assert epoch < node.epoch
    ids: dict[str, Any] = {"at": world.at, "node_id": node.node_id, "node_epoch": epoch}
    return [
        GpusFoundClean(**ids, gpu_uuids=node.uuids),
        ShareStarted(**ids, run_id=RunId(run_id)),
        ShareEnded(**ids, run_id=RunId(run_id), reason=EndReason.EXITED),
        GpusReleased(**ids, run_id=RunId(run_id), slots=SlotMask(0b11)),
        NodeSuspected(**ids, silent_s=31.0),
        NodeLost(**ids, silent_s=91.0),
    ]


@pytest.mark.parametrize("number", range(6))
def test_an_earlier_life_has_no_say(number: int) -> None:
    """One kind of word each, of a run that the present life carries."""
    world = World({"n1": 2})
    world.join("n1", 2)
    world.submit("job", 2)
    world.rounds()

    assert again(world.cluster, stale(world, "n1", "job-1")[number]) == dump(world.cluster)


def test_an_earlier_life_finds_no_gpu_of_this_one_clean() -> None:
    """Only the present agent knows what runs now."""
    world = World({"n1": 2})
    world.join("n1", 2, clean=False)

    assert again(world.cluster, stale(world, "n1", "job-1")[0]) == dump(world.cluster)


def test_an_earlier_attempt_has_no_say() -> None:
    """The job runs again on the same node, in the same life: what is told late of its first run changes nothing."""
    world = World({"n1": 2})
    job = world.submit("job", 2, retries_application=1)
    world.rounds()
    run = world.run(job)
    assert run is not None
    world.end(job, code=1)
    world.release(job)
    world.rounds()
    world.wait(400)
    world.rounds()
    assert world.cluster.jobs[job].attempt == 2

    share = run.shares[0]
    ids: dict[str, Any] = {"at": world.at, "node_id": share.node_id, "node_epoch": share.node_epoch}
    late = [
        ShareStarted(**ids, run_id=run.run_id),
        ShareEnded(**ids, run_id=run.run_id, reason=EndReason.EXITED),
        GpusReleased(**ids, run_id=run.run_id, slots=share.slots),
    ]
    assert again(world.cluster, *late) == dump(world.cluster)


def test_a_release_frees_what_the_run_holds_and_nothing_else() -> None:
    """Slots of another run, of no run, or out of the pool stay as they are."""
    world = World({"n1": 4})
    world.submit("one", 1)
    world.submit("two", 1)
    world.rounds()
    node = world.cluster.nodes[NodeId("n1")]
    ids: dict[str, Any] = {"at": world.at, "node_id": node.node_id, "node_epoch": node.epoch}
    world.add(GpusReleased(**ids, run_id=RunId("one-1"), slots=SlotMask(0b11111111)))

    node = world.cluster.nodes[node.node_id]
    assert (node.held, node.free) == ({"two-1": 0b0010}, 0b1101)
    world.add(GpusReleased(**ids, run_id=RunId("nobody-1"), slots=SlotMask(0b11111111)))
    assert world.cluster.nodes[node.node_id] == node


def test_a_release_in_part_does_not_release_the_share() -> None:
    """The run is over only with its last slot."""
    world = World({"n1": 2})
    world.submit("job", 2)
    world.rounds()
    node = world.cluster.nodes[NodeId("n1")]
    ids: dict[str, Any] = {"at": world.at, "node_id": node.node_id, "node_epoch": node.epoch, "run_id": RunId("job-1")}
    world.add(GpusReleased(**ids, slots=SlotMask(0b01)))
    assert not world.cluster.runs[RunId("job-1")].over
    world.add(GpusReleased(**ids, slots=SlotMask(0b01)))
    assert not world.cluster.runs[RunId("job-1")].over
    world.add(GpusReleased(**ids, slots=SlotMask(0b10)))
    assert world.cluster.runs[RunId("job-1")].over


def joined(world: World, *uuids: str) -> None:
    """n1 begins another life with these GPUs, all clean."""
    ids: dict[str, Any] = {"at": world.at, "node_id": NodeId("n1")}
    gpus = tuple(map(GpuUuid, uuids))
    world.add(
        NodeJoined(
            **ids, boot_id="b", instance="i", gpu_type="h100", gpu_uuids=gpus, address="127.0.0.1", port_base=20_000
        )
    )
    world.add(GpusFoundClean(**ids, node_epoch=NodeEpoch(world.records[-1].position), gpu_uuids=gpus))


def test_a_slot_is_a_gpus_for_ever() -> None:
    """A replaced GPU leaves a hole, the new one gets a number never used, and the old one finds its own again."""
    world = World({"n1": 3})
    node_id = NodeId("n1")
    joined(world, "new", "n1-1", "n1-2")
    node = world.cluster.nodes[node_id]
    assert node.uuids == ("n1-0", "n1-1", "n1-2", "new")
    assert (node.present, node.pool, node.free, node.size) == (0b1110, 0b1110, 0b1110, 3)

    joined(world, "n1-2", "n1-1", "n1-1", "newer")
    node = world.cluster.nodes[node_id]
    assert node.uuids == ("n1-0", "n1-1", "n1-2", "new", "newer")
    assert node.free == 0b10110

    joined(world, "n1-0", "new", "newer")
    assert world.cluster.nodes[node_id].free == 0b11001


def test_a_node_may_bring_other_gpus_at_each_boot() -> None:
    """When all numbers are used up, those of GPUs that are gone are given again: what is decided can still be read."""
    world = World()
    for boot in range(20):
        joined(world, *(f"{boot}-{number}" for number in range(8)))
        job = world.submit(f"job{boot}", 8)
        world.rounds()
        assert world.placed[job] == [("n1", 8)]
        world.start(job)
        world.end(job)
        world.release(job)
        world.rounds()
    node = world.cluster.nodes[NodeId("n1")]
    assert (len(node.uuids), len(set(node.uuids)), node.size) == (SLOTS_MAX, SLOTS_MAX, 8)
    codec = Codec()
    for event in (record.event for record in world.records):
        read, _ = codec.decode(family_subject(event), codec.encode(event, Stamp("id")))
        assert type(read) is type(event)
    world.assert_sound()


def test_more_gpus_than_slots_are_left_out() -> None:
    """The gate refuses such a node; whatever the log says of one, no mask ever goes beyond what can be read."""
    world = World({"n1": SLOTS_MAX + 2})
    node = world.cluster.nodes[NodeId("n1")]
    assert (node.size, node.free) == (SLOTS_MAX, (1 << SLOTS_MAX) - 1)


@given(histories())
def test_no_slot_ever_changes_its_gpu(grown: History) -> None:
    """At every position, the slots of a node begin with those it had before."""
    cluster, known = Cluster(), dict[NodeId, tuple[GpuUuid, ...]]()
    for recorded in grown.records:
        cluster = evolve(cluster, recorded)
        if isinstance(recorded.event, NodeJoined):
            node = cluster.nodes[recorded.event.node_id]
            before = known.get(node.node_id, ())
            assert node.uuids[: len(before)] == before
            assert len(set(node.uuids)) == len(node.uuids)
            known[node.node_id] = node.uuids


def test_a_gang_that_waits_for_a_lost_node_is_over_when_its_own_slots_are_clean() -> None:
    """`owed` outlives the lives in between; a GPU that was taken out of the node holds nothing."""
    world = World({"n1": 2})
    job = world.submit("job", 2, on_lost=OnLost.WAIT)
    world.rounds()
    epoch = world.cluster.nodes[NodeId("n1")].epoch
    world.add(NodeLost(at=world.at, node_id=NodeId("n1"), node_epoch=epoch, silent_s=91.0))
    world.join("n1", 2, clean=False)
    world.join("n1", 2, clean=False)
    run = world.run(job)
    assert run is not None
    assert (run.dead, run.clean, run.over) == (1, 0, False)
    assert world.cluster.nodes[NodeId("n1")].owed == {"job-1": 0b11}

    node = world.cluster.nodes[NodeId("n1")]
    ids: dict[str, Any] = {"at": world.at, "node_id": node.node_id, "node_epoch": node.epoch}
    world.add(GpusFoundClean(**ids, gpu_uuids=node.uuids[:1]))
    assert not world.cluster.runs[run.run_id].over
    joined(world, "n1-0", "new")  # n1-1 is gone for good
    assert world.cluster.runs[run.run_id].over
    assert world.cluster.nodes[NodeId("n1")].owed == {}


def test_a_placement_on_a_life_that_is_over_is_dead_on_arrival() -> None:
    """The node joined anew between decision and commit: its share holds nothing, and the run is broken."""
    world = World({"n1": 1, "n2": 1})
    job = world.submit("job", 2, nodes=2, gpus_per_node=1)
    names = (NodeId("n1"), NodeId("n2"))
    shares = tuple(NodeShare(name, world.cluster.nodes[name].epoch, SlotMask(1)) for name in names)
    ids: dict[str, Any] = {"at": world.at, "team": TeamId("t"), "job_id": job}
    world.join("n1", 1)
    world.add(JobAdmitted(**ids), JobPlaced(**ids, run_id=RunId("job-1"), attempt=1, shares=shares))

    run = world.cluster.runs[RunId("job-1")]
    assert (run.dead, run.clean, run.broken, run.over) == (0b01, 0b01, 0b01, False)
    assert world.cluster.nodes[NodeId("n1")].held == {}
    assert world.cluster.nodes[NodeId("n1")].free == 1
    assert world.cluster.nodes[NodeId("n2")].held == {"job-1": 1}


def test_a_gang_that_lost_a_share_asks_to_be_stopped_on_its_other_nodes() -> None:
    """Lifecycle looks only at what asks for it: a run with a dead share does, until it is told to stop."""
    world = World({"n1": 1, "n2": 1})
    job = world.submit("job", 2, nodes=2, gpus_per_node=1)
    world.rounds()
    world.start(job)
    world.rounds()
    run_id = RunId("job-1")
    assert run_id not in world.cluster.attention
    world.join("n1", 1)
    assert run_id in world.cluster.attention
    (stopping,) = [event for event in world.rounds() if isinstance(event, RunStopping)]
    assert (stopping.cause, stopping.node_id) == (StopCause.NODE_LOST, "n1")
    assert run_id not in world.cluster.attention
    world.release(job, "n2")
    assert run_id in world.cluster.attention  # it is over


def test_facts_about_what_nobody_knows_change_nothing() -> None:
    """The gate cannot know what the fold does: jobs, runs and nodes that never were."""
    world = World()
    ids: dict[str, Any] = {"at": world.at, "node_id": NodeId("ghost"), "node_epoch": NodeEpoch(1)}
    run: dict[str, Any] = {"run_id": RunId("ghost-1")}
    said: list[Event] = [
        JobCancelRequested(at=world.at, team=TeamId("t"), job_id=JobId("ghost")),
        GpusFoundClean(**ids, gpu_uuids=(GpuUuid("g"),)),
        ShareStarted(**ids, **run),
        ShareEnded(**ids, **run, reason=EndReason.EXITED),
        GpusReleased(**ids, **run, slots=SlotMask(1)),
    ]

    assert again(world.cluster, *said) == dump(world.cluster)


@pytest.mark.parametrize(("first", "second"), [(3, 4), (0, 4), (3, 0)])
def test_the_first_word_about_how_a_share_ended_counts(first: int, second: int) -> None:
    """A second one, with another code, is late: it neither makes a failure nor mends one."""
    world = World({"n1": 1})
    job = world.submit("job", 1)
    world.rounds()
    world.end(job, code=first)
    world.end(job, code=second)

    expected = Failure(NodeId("n1"), EndReason.EXITED, first) if first else None
    assert world.cluster.runs[RunId("job-1")].failure == expected


@pytest.mark.parametrize(
    ("subject", "stops"),
    [("job.t.j", True), ("fleet.n1", True), ("head", True), ("node.n1", False), ("intake.t.j", False),
     ("policy", False), ("unheard-of", False)],
)  # fmt: skip
def test_only_the_control_planes_own_records_must_be_readable(subject: str, stops: bool) -> None:
    """The first that is not is kept: it says from where on this version cannot judge."""
    world = World()
    world.add(Unreadable(at=world.at, subject=subject, named="?", reason="unknown"))
    first = world.records[-1].position
    world.add(Unreadable(at=world.at, subject=subject, named="?", reason="unknown"))

    assert world.cluster.unread == (first if stops else Position(0))


def test_suspicion_comes_and_goes_and_loss_stays() -> None:
    """A lost node recovers by another life only."""
    world = World({"n1": 1})
    node = world.cluster.nodes[NodeId("n1")]
    ids: dict[str, Any] = {"at": world.at, "node_id": node.node_id, "node_epoch": node.epoch}

    def state() -> NodeState:
        return world.cluster.nodes[node.node_id].state

    world.add(NodeRecovered(**ids))
    assert state() is NodeState.UP
    world.add(NodeSuspected(**ids, silent_s=31.0))
    assert state() is NodeState.SUSPECT
    world.add(NodeRecovered(**ids))
    assert state() is NodeState.UP
    world.add(NodeLost(**ids, silent_s=91.0))
    world.add(NodeRecovered(**ids), NodeSuspected(**ids, silent_s=31.0))
    assert (state(), world.free) == (NodeState.LOST, 0)
    world.add(GpusFoundClean(**ids, gpu_uuids=node.uuids))
    assert world.free == 0
    world.join("n1", 1)
    assert (state(), world.free) == (NodeState.UP, 1)
