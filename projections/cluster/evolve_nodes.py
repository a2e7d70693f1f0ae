"""How nodes change the cluster: their lives, what is said of them, and what runs there."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from events.base import NodeEpoch, Recorded
from events.fleet import NodeLost, NodeRecovered, NodeSuspected
from events.node import (
    CheckpointSaved,
    EndReason,
    GpusFoundClean,
    GpusReleased,
    NodeDescribed,
    NodeJoined,
    ShareEnded,
    ShareStarted,
)
from events.operator import NodeCordoned, NodeUncordoned
from projections.cluster.charging import started
from projections.cluster.credit.meter import leaving, used_us
from projections.cluster.evolve_drains import drained
from projections.cluster.evolve_health import joining
from projections.cluster.failures import outweighs
from projections.cluster.index import (
    node_of,
    put_node,
    put_run,
    put_slots,
)
from projections.cluster.job import EVIDENCE_MAX, Failure, Run
from projections.cluster.node import Node, NodeState, traits_of
from projections.cluster.state import Cluster

SILENT_MAX_S: Final = 366 * 86_400.0  # longer counts as this


def _joined(cluster: Cluster, e: NodeJoined, recorded: Recorded) -> None:
    before = cluster.node(e.node_id)
    node = Node(
        node_id=e.node_id,
        epoch=NodeEpoch(recorded.position),
        instance=e.instance,
        boot_id=e.boot_id,
        gpu_type=e.gpu_type,
        address=e.address,
        port_base=e.port_base,
        uuids=before.numbered(e.gpu_uuids),
        owed={**before.owed, **before.held},
        labels=e.labels,
        taints=e.taints,
        traits=traits_of(e.labels, e.taints),
        cordoned=before.cordoned,
    )
    fitness = drained(joining(before, node.uuids, e.boot_id), e, recorded.at)
    put_node(cluster, replace(node, present=node.mask(e.gpu_uuids)).being(fitness))
    _kill_shares(cluster, before, recorded, heard=before.silent_since or recorded.at)


def _described(cluster: Cluster, e: NodeDescribed, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None:
        traits = traits_of(e.labels, e.taints)
        put_node(cluster, replace(node, labels=e.labels, taints=e.taints, traits=traits))


def _lost(cluster: Cluster, e: NodeLost, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.state is not NodeState.LOST:
        put_node(cluster, node.losing())
        heard = _heard(recorded, e.silent_s)  # or before: a leader that is new has waited since it began to listen
        _kill_shares(cluster, node, recorded, heard=min(heard, node.silent_since or heard))


def _kill_shares(cluster: Cluster, before: Node, recorded: Recorded, *, heard: datetime) -> None:
    """The runs on a node know that their share there is dead. Its GPUs counted until the node was heard last."""
    for run_id, slots in before.held.items():
        run = leaving(cluster.runs[run_id], cluster.credits.bills.get(run_id), slots.bit_count(), heard)
        dead = run.dead | run.bit(before.node_id)
        put_run(cluster, replace(run, dead=dead, evidence=_with(run, recorded)))


def _heard(recorded: Recorded, silent_s: float) -> datetime:
    """When a node was heard last that has been silent for so long."""
    return recorded.at - timedelta(seconds=min(max(0.0, silent_s), SILENT_MAX_S))


def _with(run: Run, recorded: Recorded) -> tuple[str, ...]:
    """The evidence of how a run ended, and this record."""
    return (*run.evidence, recorded.id) if len(run.evidence) < EVIDENCE_MAX else run.evidence


def _found_clean(cluster: Cluster, e: GpusFoundClean, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None or node.state is NodeState.LOST:
        return
    after = node.pooling(node.mask(e.gpu_uuids))
    put_node(cluster, after)
    for run_id in (node.owed.keys() - after.owed.keys()) & cluster.runs.keys():
        run = cluster.runs[run_id]
        put_run(cluster, replace(run, clean=run.clean | run.bit(e.node_id)))


def _suspected(cluster: Cluster, e: NodeSuspected, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.state is NodeState.UP:
        put_node(cluster, replace(node, state=NodeState.SUSPECT, silent_since=_heard(recorded, e.silent_s)))


def _recovered(cluster: Cluster, e: NodeRecovered, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.state is NodeState.SUSPECT:
        put_node(cluster, replace(node, state=NodeState.UP, silent_since=None))


def _cordoned(cluster: Cluster, e: NodeCordoned | NodeUncordoned, recorded: Recorded) -> None:
    if e.node_id in cluster.nodes:
        put_node(cluster, replace(cluster.nodes[e.node_id], cordoned=isinstance(e, NodeCordoned)))


# Shares: reports of the life that the run was placed in; of any other they change nothing


def _share_started(cluster: Cluster, e: ShareStarted, recorded: Recorded) -> None:
    run = cluster.runs.get(e.run_id)
    if run is not None and run.epoch_on(e.node_id) == e.node_epoch:
        # By this record its use counts: that all shares have started may be said after its end.
        put_run(cluster, started(cluster, run, run.started | run.bit(e.node_id), recorded))


def _share_ended(cluster: Cluster, e: ShareEnded, recorded: Recorded) -> None:
    run = cluster.runs.get(e.run_id)
    if run is None or run.epoch_on(e.node_id) != e.node_epoch:
        return
    bit = run.bit(e.node_id)
    if run.ended & bit:
        return  # said before
    failure = run.failure
    if not (e.reason is EndReason.EXITED and e.exit_code == 0):
        said = Failure(e.node_id, e.reason, e.exit_code, e.out_of_memory, e.isolated)
        failure = said if outweighs(said, failure) else failure
    evidence = _with(run, recorded) if failure is not run.failure else run.evidence
    put_run(cluster, replace(run, ended=run.ended | bit, failure=failure, evidence=evidence))


def _checkpoint_saved(cluster: Cluster, e: CheckpointSaved, recorded: Recorded) -> None:
    run = cluster.runs.get(e.run_id)
    if run is not None and run.epoch_on(e.node_id) == e.node_epoch and e.number > run.saved:
        saved_us = used_us(run, cluster.credits.bills.get(e.run_id), recorded.at)
        put_run(cluster, replace(run, saved=e.number, saved_at=recorded.at, saved_us=saved_us))


def _released(cluster: Cluster, e: GpusReleased, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None or e.run_id not in node.held:
        return  # late, doubled, or of an older life
    after = node.freeing(e.run_id, e.slots)
    put_slots(cluster, after)
    run = cluster.runs[e.run_id]
    if (bill := cluster.credits.bills.get(e.run_id)) is not None:  # the use of others is asked for by nobody
        run = leaving(run, bill, (node.held[e.run_id] & e.slots).bit_count(), recorded.at)
    if e.run_id not in after.held:
        # That its GPUs came back without a word how it ended there is what ended it: it is taken as lost.
        evidence = run.evidence if run.ended & run.bit(e.node_id) else _with(run, recorded)
        run = replace(run, released=run.released | run.bit(e.node_id), evidence=evidence)
    put_run(cluster, run)


NODE_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    NodeJoined: _joined,
    NodeDescribed: _described,
    GpusFoundClean: _found_clean,
    NodeSuspected: _suspected,
    NodeRecovered: _recovered,
    NodeLost: _lost,
    ShareStarted: _share_started,
    ShareEnded: _share_ended,
    CheckpointSaved: _checkpoint_saved,
    NodeCordoned: _cordoned,
    NodeUncordoned: _cordoned,
    GpusReleased: _released,
}
