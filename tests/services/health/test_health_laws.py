"""Laws of verdicts over random histories, held to counts of their own."""

from collections import Counter

from hypothesis import given

from events.alarm import AlarmCode
from events.base import GpuUuid, NodeId
from events.fleet import DrainCause, NodeDrainBegun
from events.gpu import GpuAction, GpuJudged, GpuReturned
from events.node import NodeJoined
from projections.cluster.evolve import evolve
from projections.cluster.node import Node
from projections.cluster.state import Cluster
from tests.histories import History, histories, history

AUTOMATIC = {DrainCause.GPU, DrainCause.UNKILLABLE, DrainCause.LEMON}


def out_of(node: Node) -> int:
    """GPUs of a node that are out by verdicts and automatic drains, one by one."""
    if node.fitness.drain is not None and node.fitness.drain.cause in AUTOMATIC:
        return node.present.bit_count()
    present = [uuid for slot, uuid in enumerate(node.uuids) if node.present >> slot & 1]
    return sum(uuid in node.fitness.ailments for uuid in present)


def counted(cluster: Cluster) -> tuple[int, int, int]:
    """GPUs, those that are out, and the nodes that these are of."""
    nodes = [node for node in cluster.nodes.values() if not node.fitness.retired]
    out = [out_of(node) for node in nodes]
    return sum(node.present.bit_count() for node in nodes), sum(out), sum(map(bool, out))


def beyond(grown: History) -> Counter[str]:
    """What was decided, by kind; asserts that nothing took out more than the policy allows."""
    cluster, seen = Cluster(), Counter[str]()
    for recorded in grown.records:
        judging = isinstance(recorded.event, GpuJudged | NodeDrainBegun)
        before = counted(cluster)[1] if judging else 0
        cluster = evolve(cluster, recorded)
        if not judging:
            continue
        gpus, out, nodes = counted(cluster)
        if out > before:
            seen["out"] += 1
            assert nodes == 1 or out * 100 <= cluster.policy.breaker_percent * gpus, recorded
        if isinstance(recorded.event, GpuJudged):
            seen["held back" if recorded.event.held_back else recorded.event.action.value] += 1
    return seen


@given(histories())
def test_verdicts_and_automatic_drains_never_take_out_more_than_the_policy_allows(grown: History) -> None:
    """One node apart, whatever joins, leaves and is mended meanwhile; and while something is held back a person is called."""
    grown.settle()
    beyond(grown)
    waiting = any(sign.held_back for node in grown.cluster.nodes.values() for sign in node.fitness.pending)
    assert not waiting or AlarmCode.BREAKER in grown.cluster.alarms


@given(histories())
def test_a_gpu_is_out_from_its_verdict_to_its_return(grown: History) -> None:
    """In all lives of its node between them, by the events alone."""
    grown.settle()
    epochs: dict[NodeId, int] = {}
    out: set[tuple[NodeId, GpuUuid]] = set()
    for recorded in grown.records:
        match recorded.event:
            case GpuJudged() as e if epochs.get(e.node_id) == e.node_epoch and not e.held_back:
                if e.action not in (GpuAction.LOG, GpuAction.RESTART):
                    out.add((e.node_id, e.gpu_uuid))
            case GpuReturned() as e if epochs.get(e.node_id) == e.node_epoch:
                out.discard((e.node_id, e.gpu_uuid))
            case NodeJoined() as e:
                epochs[e.node_id] = recorded.position
            case _:
                pass
    nodes = grown.cluster.nodes.values()
    assert {(node.node_id, uuid) for node in nodes for uuid in node.fitness.ailments} == out
    slots = {(node.node_id, uuid) for node in nodes for slot, uuid in enumerate(node.uuids) if node.sick >> slot & 1}
    assert slots == out


def test_histories_hold_what_these_laws_are_about() -> None:
    """GPUs go, and some that would go are held back."""
    seen = Counter[str]()
    for seed in (1, 20, 25, 47):
        seen += beyond(history(seed, 250))
    assert {
        kind for kind in ("out", "held back", "log", "restart", "reset", "drain", "evict") if not seen[kind]
    } == set()
