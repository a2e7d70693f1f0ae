"""The runs on one GPU type that may be stopped for others at all: looked at once in a round, whoever asks."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from events.base import RunId, TeamId
from projections.cluster.job import Run
from projections.cluster.node import Node, NodeState
from projections.cluster.placing.room import domain_of
from projections.cluster.state import Cluster

Whose = tuple[TeamId, int]  # a team and a class


class Alike(NamedTuple):
    """Nodes that are counted together: what they could give, whoever asks."""

    domain: tuple[str, str]
    size: int
    sure: int  # GPUs that are free, or come free anyway
    held: frozenset[tuple[Whose, int]]  # GPUs of runs that may be stopped


class Field:
    """What does not depend on for whom: nodes that take work, what each run would lose, and how much that is in all."""

    def __init__(self, cluster: Cluster, at: datetime, gpu_type: str) -> None:
        self.gpu_type = gpu_type
        self.nodes: list[Node] = []  # up, and not closed
        self.runs: dict[RunId, Run] = {}  # that hold something there
        self.ending: set[RunId] = set()  # of these, those that give it back anyway
        self.lost: dict[RunId, int] = {}  # of those that may be stopped: GPU-seconds
        self.soon = 0  # GPUs of those that end
        self.claimable: dict[Whose, int] = {}  # GPUs of those that may be stopped, by team and class
        self.searches = 0  # made among these runs, in this round
        self._alike: dict[str, Counter[Alike]] = {}  # nodes, by the kind of domain they are told apart by
        for node in cluster.nodes.values():
            if node.gpu_type == gpu_type and node.state is NodeState.UP and not node.closed:
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

    def roomy(self, whose: Iterable[Whose], within: str) -> list[Counter[tuple[int, int]]]:
        """Nodes by their size and the GPUs that they would have if all runs of these teams and classes ended.

        All together, or for each rack or spine; no search finds more.
        """
        if (alike := self._alike.get(within)) is None:
            alike = self._alike[within] = Counter(self._like(node, within) for node in self.nodes)
        stopped = set(whose)
        found: dict[tuple[str, str], Counter[tuple[int, int]]] = {}
        for kind, nodes in alike.items():
            most = kind.sure + sum(gpus for team_and_class, gpus in kind.held if team_and_class in stopped)
            found.setdefault(kind.domain, Counter())[kind.size, most] += nodes
        return list(found.values())

    def _like(self, node: Node, within: str) -> Alike:
        open_ones, sure = node.pool & ~node.marked & ~node.sick, node.spare
        held: Counter[Whose] = Counter()
        for run_id, slots in node.held.items():
            if run_id in self.ending:
                sure |= slots & open_ones
            elif run_id in self.lost:
                run = self.runs[run_id]
                held[run.team, run.rank] += (slots & open_ones).bit_count()
        domain = domain_of(node.place, within) if within else ("", "")
        if within and not any(domain):
            domain = ("", f" {node.node_id}")  # nobody said where: alone in its own
        return Alike(domain, node.size, sure.bit_count(), frozenset(held.items()))


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
