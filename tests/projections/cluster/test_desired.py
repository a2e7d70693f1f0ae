"""What nodes are told to run: ranks, rendezvous, GPUs, orders, and how long a share stays."""

from typing import Any

import msgspec
from hypothesis import given

from events.base import GpuUuid, NodeId, RunId, SlotMask, TeamId
from events.desired import UNTOLD, Order
from events.fleet import NodeLost
from events.job import JobAdmitted, JobPlaced, NodeShare, Ranks, StopCause
from events.node import GpusFoundClean, GpusReleased, NodeJoined
from events.policy import Overrun
from projections.cluster.desired import VALUE_BYTES_MAX, desired, fitted
from projections.cluster.node import NodeState
from tests.clusters import World
from tests.histories import History, histories


def test_a_gang_meets_at_one_place_with_ranks_in_the_order_of_its_nodes() -> None:
    """First ranks add up over the shares before; all name the first share's node, at the port of its lowest slot."""
    world = World({"n1": 4, "n2": 4})
    world.submit("small", 1)
    world.rounds()
    gang = world.submit("gang", 6, nodes=2, gpus_per_node=3)
    world.rounds()

    one, two = (desired(world.cluster, NodeId(name)).shares for name in ("n1", "n2"))
    assert [share.run_id for share in one] == ["gang-1", "small-1"]
    assert [share.run_id for share in two] == ["gang-1"]
    first, second = one[0], two[0]
    assert (first.node_rank, first.first_rank, first.local_size) == (0, 0, 3)
    assert (second.node_rank, second.first_rank, second.local_size) == (1, 3, 3)
    assert {(share.nodes, share.world_size) for share in (first, second)} == {(2, 6)}
    assert {(share.master_addr, share.master_port) for share in (first, second)} == {("127.0.0.1", 20_001)}
    assert (first.slots, first.gpu_uuids) == (0b1110, ("n1-1", "n1-2", "n1-3"))
    assert (second.slots, second.gpu_uuids) == (0b0111, ("n2-0", "n2-1", "n2-2"))
    assert (first.order, first.cause, first.job_id, first.team, first.attempt) == (Order.RUN, None, gang, "t", 1)
    assert first.spec == world.cluster.jobs[gang].spec
    assert one[1].master_port == 20_000  # no two runs of a node meet at one port


def test_ranks_go_along_the_network_as_the_placement_says() -> None:
    """Node rank n is shares[ranks[n]]: first ranks add up in that order, and all meet where rank 0 is."""
    world = World({"n1": 1, "n2": 2, "n3": 5})
    job = world.submit("gang", 7)
    world.add(JobAdmitted(at=world.at, team=TeamId("t"), job_id=job))
    shares = tuple(
        NodeShare(node_id, world.cluster.nodes[node_id].epoch, SlotMask(slots))
        for node_id, slots in ((NodeId("n1"), 0b1), (NodeId("n2"), 0b11), (NodeId("n3"), 0b11110))
    )
    world.add(
        JobPlaced(
            at=world.at, team=TeamId("t"), job_id=job, run_id=RunId("gang-1"), attempt=1, shares=shares, ranks=(2, 0, 1)
        )
    )

    found = {name: desired(world.cluster, NodeId(name)).shares[0] for name in ("n1", "n2", "n3")}
    assert [(found[name].node_rank, found[name].first_rank) for name in ("n3", "n1", "n2")] == [(0, 0), (1, 4), (2, 5)]
    assert {share.master_port for share in found.values()} == {20_001}  # of the lowest slot on n3
    assert {share.world_size for share in found.values()} == {7}


def test_one_rank_a_node_counts_nodes() -> None:
    """A world of as many ranks as shares; each sees all GPUs of its share."""
    world = World({"n1": 8, "n2": 8})
    world.submit("gang", 16, ranks=Ranks.PER_NODE)
    world.rounds()

    (second,) = desired(world.cluster, NodeId("n2")).shares
    assert (second.node_rank, second.first_rank, second.local_size, second.world_size) == (1, 1, 1, 2)
    assert len(second.gpu_uuids) == 8


def test_a_share_is_told_to_stop_and_stays_until_it_is_released() -> None:
    """A release in part leaves the rest of the mask, and the share as it was placed."""
    world = World({"n1": 4})
    job = world.submit("job", 2)
    world.rounds()
    world.start(job)
    world.cancel(job)
    world.rounds()
    (share,) = desired(world.cluster, NodeId("n1")).shares
    assert (share.order, share.cause, share.slots) == (Order.STOP, StopCause.CANCEL, 0b11)
    assert share.reason == share.cause

    run = world.run(job)
    assert run is not None
    epoch = run.shares[0].node_epoch
    ids: dict[str, Any] = {"at": world.at, "node_id": NodeId("n1"), "node_epoch": epoch, "run_id": run.run_id}
    world.add(GpusReleased(**ids, slots=SlotMask(0b01)))
    (share,) = desired(world.cluster, NodeId("n1")).shares
    assert (share.slots, share.gpu_uuids, share.local_size) == (0b10, ("n1-0", "n1-1"), 2)

    world.end(job)
    world.add(GpusReleased(**ids, slots=SlotMask(0b10)))
    assert desired(world.cluster, NodeId("n1")).shares == ()


def test_another_life_has_no_share_of_the_one_before() -> None:
    """No agent starts what was placed in an earlier epoch; a lost life is told so."""
    world = World({"n1": 2})
    world.submit("job", 2)
    world.rounds()
    before = desired(world.cluster, NodeId("n1"))
    assert (len(before.shares), before.lost, before.instance, before.as_of) == (1, False, "i", world.tick().position)

    world.add(NodeLost(at=world.at, node_id=NodeId("n1"), node_epoch=before.epoch, silent_s=91.0))
    lost = desired(world.cluster, NodeId("n1"))
    assert (lost.epoch, lost.lost, lost.shares) == (before.epoch, True, ())

    epoch = world.join("n1", 2)
    again = desired(world.cluster, NodeId("n1"))
    assert (again.epoch, again.lost, again.shares) == (epoch, False, ())


def test_a_share_names_the_gpus_that_its_slots_mean_after_one_was_replaced() -> None:
    """Slot 0's GPU is gone for good, so the share is on slots 1 and 2, whose GPUs are named."""
    world = World({"n1": 2})
    world.add(
        NodeJoined(
            at=world.at, node_id=NodeId("n1"), boot_id="b", instance="i", gpu_type="h100",
            gpu_uuids=(GpuUuid("fresh"), GpuUuid("n1-1")), address="10.0.0.1", port_base=20_000,
        )
    )  # fmt: skip
    world.add(_clean(world, "n1", "fresh", "n1-1"))
    world.submit("job", 2)
    world.rounds()

    (share,) = desired(world.cluster, NodeId("n1")).shares
    assert (share.slots, share.gpu_uuids) == (0b110, ("n1-1", "fresh"))
    assert (share.master_addr, share.master_port) == ("10.0.0.1", 20_001)


@given(histories(150))
def test_every_held_slot_is_told_to_its_node_and_no_other(grown: History) -> None:
    """Over random histories: the shares of a node are what it holds, each named once, with its own GPUs."""
    for node_id, node in grown.cluster.nodes.items():
        told = desired(grown.cluster, node_id)
        assert {share.run_id: share.slots for share in told.shares} == node.held
        assert told.lost == (node.state is NodeState.LOST)
        for share in told.shares:
            assert share.first_rank + share.local_size <= share.world_size
            assert len(share.gpu_uuids) == share.local_size  # one rank a GPU
            assert node.mask(share.gpu_uuids) & share.slots == share.slots
        whole = [share for share in told.shares if node.mask(share.gpu_uuids) == share.slots]  # others have ended
        ports = [share.master_port for share in whole if share.node_rank == 0]
        assert len(ports) == len(set(ports))


def _clean(world: World, name: str, *uuids: str) -> GpusFoundClean:
    node = world.cluster.nodes[NodeId(name)]
    return GpusFoundClean(
        at=world.at, node_id=node.node_id, node_epoch=node.epoch, gpu_uuids=tuple(map(GpuUuid, uuids))
    )


def test_what_one_message_does_not_hold_is_told_bit_by_bit() -> None:
    """Forty jobs with large specs on one node: the oldest are told first, the next when those have started."""
    world, n1 = World({"n1": 40}), NodeId("n1")
    jobs = [world.submit(f"job{number:02}", 1, env={"LARGE": "x" * 60_000}) for number in range(40)]
    world.rounds()
    waiting, turns = list(jobs), 0
    before: set[str] = set()
    while waiting:
        turns += 1
        told = fitted(world.cluster, desired(world.cluster, n1))
        assert len(msgspec.json.encode(told)) <= VALUE_BYTES_MAX
        fresh = [share for share in told.shares if share.spec is not UNTOLD]
        assert [share.job_id for share in fresh] == waiting[: len(fresh)]
        assert fresh
        assert before <= {share.run_id for share in told.shares}, "what was told once is told until it is released"
        before = {share.run_id for share in told.shares}
        for share in fresh:
            world.start(share.job_id)
            waiting.remove(share.job_id)
    assert turns == 3
    whole = desired(world.cluster, n1)
    assert [share.run_id for share in fitted(world.cluster, whole).shares] == [share.run_id for share in whole.shares]


def test_an_order_to_stop_finds_room_in_a_crowded_message() -> None:
    """A node that is full of large specs still hears of a cancel."""
    world, n1 = World({"n1": 20}), NodeId("n1")
    jobs = [world.submit(f"job{number:02}", 1, env={"LARGE": "x" * 60_000}) for number in range(20)]
    world.rounds()
    world.cancel(jobs[-1])
    world.rounds()
    told = fitted(world.cluster, desired(world.cluster, n1))
    assert {share.job_id for share in told.shares if share.order is Order.STOP} == {jobs[-1]}
    assert len(told.shares) < 20


def test_what_fits_is_told_as_it_is() -> None:
    """Nothing is left out of it."""
    world = World({"n1": 63})
    for number in range(63):
        world.submit(f"job{number}", 1)
    world.rounds()
    whole = desired(world.cluster, NodeId("n1"))
    assert len(whole.shares) == 63
    assert fitted(world.cluster, whole) is whole


def test_a_run_that_may_go_on_is_told_of_no_limit() -> None:
    """Under `extend` the declared runtime is for planning only; under `kill` the agent ends what reaches it."""
    world = World({"n1": 2})
    world.policy(overrun=Overrun.EXTEND)
    world.submit("long", 1, max_runtime_s=60)
    world.rounds()
    world.policy()
    world.submit("later", 1, max_runtime_s=60)
    world.rounds()

    later, long = desired(world.cluster, NodeId("n1")).shares
    assert (long.run_id, long.spec.max_runtime_s) == ("long-1", 0)
    assert later.spec.max_runtime_s == 60  # by the policy of the time when it was placed
