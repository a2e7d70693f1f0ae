"""What a node should run, from the fold: what the dispatcher writes, and an agent makes true.

The ranks of a gang meet on the node of its first share, at the port of that share's lowest slot: a slot is one run's
alone, so no two runs of a node ever meet at one port.
"""

from events.base import NodeId, RunId, SlotMask
from events.desired import Desired, DesiredShare, Order
from events.job import JobSpec, Ranks
from projections.cluster.state import Cluster, Node, NodeState, Run


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
    )


def _share(cluster: Cluster, node: Node, run_id: RunId) -> DesiredShare:
    run = cluster.runs[run_id]
    job = cluster.jobs[run.job_id]
    slots = node.held[run_id]
    index = run.bit(node.node_id).bit_length() - 1
    first = run.shares[0]
    master = cluster.node(first.node_id)
    placed = run.shares[index].slots  # all of the share, though a part of it may be released
    return DesiredShare(
        run_id=run_id,
        job_id=job.job_id,
        team=job.team,
        attempt=run.attempt,
        order=Order.RUN if run.stopping is None else Order.STOP,
        cause=run.stopping,
        slots=SlotMask(slots),
        gpu_uuids=tuple(uuid for slot, uuid in enumerate(node.uuids) if placed >> slot & 1),
        node_rank=index,
        nodes=len(run.shares),
        first_rank=_ranks_before(run, job.spec, index),
        world_size=_ranks_before(run, job.spec, len(run.shares)),
        local_size=1 if job.spec.ranks is Ranks.PER_NODE else placed.bit_count(),
        master_addr=master.address,
        master_port=master.port_base + (first.slots & -first.slots).bit_length() - 1,
        spec=job.spec,
    )


def _ranks_before(run: Run, spec: JobSpec, index: int) -> int:
    """Ranks in the shares before this one: the global rank of its first."""
    if spec.ranks is Ranks.PER_NODE:
        return index
    return sum(share.slots.bit_count() for share in run.shares[:index])
