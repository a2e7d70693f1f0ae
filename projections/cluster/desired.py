"""What a node should run, from the fold: what the dispatcher writes, and an agent makes true.

Ranks go along the network, as the placement put the shares: those of one rack have neighbouring numbers. The gang meets
on the node of rank 0, at the port of its share's lowest slot: a slot is one run's alone, so no two runs of a node ever
meet at one port.
"""

from typing import Final

import msgspec

from events.base import GpuUuid, NodeId, RunId, SlotMask
from events.desired import CAUSES_AT_FIRST, UNTOLD, Desired, DesiredShare, Order
from events.gpu import Recovery
from events.job import JobSpec, Ranks
from projections.cluster.job import Run
from projections.cluster.node import Node, NodeState
from projections.cluster.patience import waiting
from projections.cluster.state import Cluster

VALUE_BYTES_MAX: Final = (1 << 20) - 4_096  # with its headers it still fits into one message
SHARE_BYTES_MAX: Final = 80 * 1_024  # with a spec as large as the gate takes one

_encoder = msgspec.json.Encoder()


def desired(cluster: Cluster, node_id: NodeId) -> Desired:
    """All that a node should run as of the fold's position. A share stays in it until its release is in the log."""
    node = cluster.nodes[node_id]
    return Desired(
        node_id=node_id,
        epoch=node.epoch,
        instance=node.instance,
        as_of=cluster.position,
        lost=node.state is NodeState.LOST,
        shares=tuple(_share(cluster, node, run_id) for run_id in sorted(node.held)),
        resets=_resets(node),
        waiting=waiting(cluster, node),
    )


def _resets(node: Node) -> tuple[GpuUuid, ...]:
    """The GPUs that a reset would return, and that nothing was yet done about: once nothing holds them."""
    done = {remedy.gpu_uuid for remedy in node.fitness.remedies}
    ailments = node.fitness.ailments.items()
    return tuple(sorted(u for u, one in ailments if Recovery.RESET in one.returns_by and u not in done))


def fitted(cluster: Cluster, whole: Desired) -> Desired:
    """`whole`, if one message holds it; else as much of it as one does.

    Left out are first the specs of shares that have started or are to stop. If it is too much still, the shares that
    were placed last are left out: they come when others have started.
    """
    if len(whole.shares) * SHARE_BYTES_MAX <= VALUE_BYTES_MAX or len(_encoder.encode(whole)) <= VALUE_BYTES_MAX:
        return whole
    shares = [_without_needless(cluster, whole.node_id, share) for share in whole.shares]
    left = VALUE_BYTES_MAX - len(_encoder.encode(msgspec.structs.replace(whole, shares=())))
    kept: set[RunId] = set()
    for share in sorted(shares, key=lambda share: (share.spec is not UNTOLD, cluster.runs[share.run_id].placed)):
        left -= len(_encoder.encode(share)) + 1
        if left < 0:
            break
        kept.add(share.run_id)
    return msgspec.structs.replace(whole, shares=tuple(share for share in shares if share.run_id in kept))


def _without_needless(cluster: Cluster, node_id: NodeId, share: DesiredShare) -> DesiredShare:
    run = cluster.runs[share.run_id]
    needless = share.order is Order.STOP or run.started & run.bit(node_id)
    return msgspec.structs.replace(share, spec=UNTOLD) if needless else share


def _share(cluster: Cluster, node: Node, run_id: RunId) -> DesiredShare:
    run = cluster.runs[run_id]
    job = cluster.jobs[run.job_id]
    slots = node.held[run_id]
    index = run.bit(node.node_id).bit_length() - 1
    order = run.ranks or range(len(run.shares))
    node_rank = order.index(index)
    first = run.shares[order[0]]
    master = cluster.node(first.node_id)
    placed = run.shares[index].slots  # all of the share, though a part of it may be released
    return DesiredShare(
        run_id=run_id,
        job_id=job.job_id,
        team=job.team,
        attempt=run.attempt,
        order=Order.RUN if run.stopping is None else Order.STOP,
        cause=run.stopping if run.stopping in CAUSES_AT_FIRST else None,
        reason=run.stopping or "",
        slots=SlotMask(slots),
        gpu_uuids=tuple(uuid for slot, uuid in enumerate(node.uuids) if placed >> slot & 1),
        node_rank=node_rank,
        nodes=len(run.shares),
        first_rank=_ranks_before(run, job.spec, node_rank),
        world_size=_ranks_before(run, job.spec, len(run.shares)),
        local_size=1 if job.spec.ranks is Ranks.PER_NODE else placed.bit_count(),
        master_addr=master.address,
        master_port=master.port_base + (first.slots & -first.slots).bit_length() - 1,
        spec=_spec(run, job.spec),
    )


def _spec(run: Run, spec: JobSpec) -> JobSpec:
    """What the agent is to obey: no limit of runtime where the run may go on beyond what it declared."""
    return msgspec.structs.replace(spec, max_runtime_s=0) if run.extends and spec.max_runtime_s else spec


def _ranks_before(run: Run, spec: JobSpec, node_rank: int) -> int:
    """Ranks in the shares before the one of this node rank: the global rank of its first."""
    if spec.ranks is Ranks.PER_NODE:
        return node_rank
    before = run.ranks[:node_rank] if run.ranks else range(node_rank)
    return sum(run.shares[index].slots.bit_count() for index in before)
