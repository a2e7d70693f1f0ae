"""The runs on one GPU type that may be stopped for others at all: looked at once in a round, whoever asks."""

from datetime import datetime

from events.base import RunId, TeamId
from projections.cluster.job import Run
from projections.cluster.node import Node, NodeState
from projections.cluster.state import Cluster


class Field:
    """What does not depend on for whom: nodes that take work, what each run would lose, and how much that is in all."""

    def __init__(self, cluster: Cluster, at: datetime, gpu_type: str) -> None:
        self.gpu_type = gpu_type
        self.nodes: list[Node] = []  # up, and not cordoned
        self.runs: dict[RunId, Run] = {}  # that hold something there
        self.ending: set[RunId] = set()  # of these, those that give it back anyway
        self.lost: dict[RunId, int] = {}  # of those that may be stopped: GPU-seconds
        self.soon = 0  # GPUs of those that end
        self.claimable: dict[tuple[TeamId, int], int] = {}  # GPUs of those that may be stopped, by team and class
        for node in cluster.nodes.values():
            if node.gpu_type == gpu_type and node.state is NodeState.UP and not node.cordoned:
                self.nodes.append(node)
                for run_id in node.held:
                    if run_id not in self.runs:
                        self._look_at(cluster, at, run_id)

    def _look_at(self, cluster: Cluster, at: datetime, run_id: RunId) -> None:
        run = self.runs[run_id] = cluster.runs[run_id]
        if is_ending(run):
            self.ending.add(run_id)
            self.soon += run.gpus
        elif may_be_stopped(cluster, at, run):
            self.lost[run_id] = lost_gpu_s(run, at)
            key = run.team, run.rank
            self.claimable[key] = self.claimable.get(key, 0) + run.gpus


def is_ending(run: Run) -> bool:
    """Whether a run gives its GPUs back without anything more being decided: it was told to, or all its ranks have ended."""
    return run.stopping is not None or bool(run.evicted_for) or run.ended == run.all


def may_be_stopped(cluster: Cluster, at: datetime, run: Run) -> bool:
    """Whether a run that is not ending may be stopped for others: preemptible, not too soon after it began, nor too often."""
    policy = cluster.policy
    if not run.preemptible or (at - (run.started_at or run.placed_at)).total_seconds() < policy.min_runtime_s:
        return False
    job = cluster.jobs[run.job_id]
    if job.evictions >= policy.evictions_max or job.cancel or run.failure is not None or run.broken:
        return False  # the latter three end for other reasons: what they hold counts when they were told to
    return job.evicted_at is None or (at - job.evicted_at).total_seconds() >= policy.cool_down_s


def lost_gpu_s(run: Run, at: datetime) -> int:
    """GPU-seconds that a run loses if it ends now: since its last checkpoint, or since it began."""
    since = run.saved_at or run.started_at or run.placed_at
    return max(0, int((at - since).total_seconds())) * run.gpus
