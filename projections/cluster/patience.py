"""How long a silent node is waited for: as long as that costs less than to start elsewhere what runs there.

Waiting keeps every GPU of the gangs that the node holds up from working; a restart loses what they did since their last
checkpoints, and the time until they go on. A gang that is being stopped loses nothing more: it only waits.

Example: a node was heard last at 12:00. It carries one of 64 nodes of a gang with 512 GPUs, which saved a checkpoint at
11:52, and all of a run with 8 GPUs, which started at 11:57. With `restart_s` = 120 a restart costs
512 x (480 + 120) + 8 x (180 + 120) = 309,600 GPU-seconds. Waiting costs 520 of them a second, so after 595.4 s it has cost
as much: if the node is silent for so long, it is given up. A run that saved a moment ago makes that 120 s. Both are between
the policy's bounds: `lost_after_s` = 90 and `lost_most_s` = 900.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from events.desired import Waiting
from events.fleet import Patience
from events.job import OnLost
from events.policy import PolicySet
from projections.cluster.job import Run
from projections.cluster.node import Node
from projections.cluster.state import Cluster

TICK: Final = timedelta(microseconds=1)  # times are counted in these, so that sums are the same in any order
SECOND: Final = 1_000_000


class Costs(NamedTuple):
    """What it costs that a node was not heard after some time."""

    gpus: int  # of the gangs that it holds up
    restart_gpu_s: float  # to start them elsewhere

    @property
    def even_s(self) -> float:
        """The silence at which waiting has cost as much as a restart."""
        return round(self.restart_gpu_s / self.gpus, 3) if self.gpus else 0.0


def costs(cluster: Cluster, node: Node, heard: datetime) -> Costs:
    """The costs of silence of a node that was heard last at `heard`."""
    runs = [cluster.runs[run_id] for run_id in node.held]
    restart_us = cluster.policy.restart_s * SECOND
    lost = sum(run.gpus * (_unsaved_us(run, heard) + restart_us) for run in runs if run.stopping is None)
    return Costs(sum(run.gpus for run in runs), lost / SECOND)


def bounded(even_s: float, policy: PolicySet) -> tuple[float, Patience]:
    """The silence after which a node is given up, and what says so."""
    most_s = max(policy.lost_after_s, policy.lost_most_s)
    if even_s <= policy.lost_after_s:
        return policy.lost_after_s, Patience.LEAST
    return (most_s, Patience.MOST) if even_s >= most_s else (even_s, Patience.COST)


def waiting(cluster: Cluster, node: Node) -> Waiting:
    """What a node is told of this, as of the fold's last record."""
    assert cluster.at is not None
    policy = cluster.policy
    most_s = max(policy.lost_after_s, policy.lost_most_s) if node.held else policy.lost_after_s
    even_s = costs(cluster, node, cluster.at).even_s
    return Waiting(at=cluster.at, even_s=even_s, least_s=policy.lost_after_s, most_s=most_s)


def may_restart(cluster: Cluster, node: Node) -> bool:
    """Whether something that runs there may be started elsewhere once the node is given up."""
    return any(cluster.runs[run_id].on_lost is OnLost.RESTART for run_id in node.held)


def _unsaved_us(run: Run, heard: datetime) -> int:
    """How long a run had worked, when it was heard last, for what a restart loses."""
    since = run.saved_at or run.started_at or heard
    return max(0, (heard - since) // TICK)
