"""What every team and every queue above it has and wants, by GPU type: sums over the fold's own sums, no look at jobs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from events.base import TeamId, run_id_of
from events.policy import JobOrder
from projections.cluster.index import use_of
from projections.cluster.job import WANT_NOTHING, Job, JobState, Run
from projections.cluster.quota.tree import ALL_TYPES
from projections.cluster.state import Cluster, Use

Sums = defaultdict[str, defaultdict[str, int]]  # gpu type -> team or queue -> GPUs
BY_CLASS: Final = frozenset({JobOrder.FAIR, JobOrder.PRIORITY})
DUE_MAX: Final = 10_000  # jobs whose back-off is over, and of which no round has said anything yet


class Held:
    """GPUs by type and queue, and jobs by queue, as limits count them."""

    def __init__(self) -> None:
        self.gpus = _sums()
        self.all: defaultdict[str, int] = defaultdict(int)  # of `gpus`, over all types
        self.jobs: defaultdict[str, int] = defaultdict(int)

    def add(self, path: Sequence[str], gpu_type: str, gpus: int, jobs: int) -> None:
        """So many more at each of these queues; less, if negative. `ALL_TYPES`: of a type that is not known yet."""
        of_type = self.gpus[gpu_type]
        for name in path:
            of_type[name] += gpus
            self.all[name] += gpus
            self.jobs[name] += jobs

    def of(self, name: str, gpu_type: str) -> int:
        """GPUs of a queue, of a type or of all."""
        return self.all[name] if gpu_type == ALL_TYPES else self.gpus[gpu_type][name]


class Claims:
    """GPUs by queue, each counted at every queue from the team's own up to the one under the root.

    Where a team's queue has queues below, its own jobs count at the name that `Tree.path` begins with.
    """

    def __init__(self, cluster: Cluster, at: datetime, *, without: Mapping[tuple[TeamId, str], int]) -> None:
        self._tree = cluster.tree
        self.path = cluster.tree.path
        self.used = _sums()  # by runs that are not leaving, and earmarked
        self.now = Held()  # by all runs
        self.then = Held()  # by those that are not leaving, and earmarked: once what is decided has happened
        self.milder: dict[int, Held] = {}  # of `then`, by class: preemptible, and not only earmarked; of a team alone
        self.firm = _sums()  # of `used`, what cannot be preempted
        self.mild: defaultdict[tuple[str, str, int], int] = defaultdict(int)  # (queue, type, rank): the rest, of a team
        self.total: defaultdict[str, int] = defaultdict(int)  # of `used`, over all types
        self.wanted = _sums()  # by waiting jobs, at the first name of a team's path
        self.changes = 0  # of what is used
        self._cluster = cluster
        self._favourite = type_of(cluster, ())
        self._count_runs(cluster)
        self._count_wanted(cluster, at, without)
        self._count_earmarks(cluster)
        self._began = {gpu_type: dict(used) for gpu_type, used in self.used.items()}

    def type_of(self, gpu_types: Sequence[str]) -> str:
        """As the function `type_of`, remembered for jobs that accept any."""
        return type_of(self._cluster, gpu_types) if gpu_types else self._favourite

    def demand(self, name: str, gpu_type: str) -> int:
        """What a team used and wanted at first, whatever was taken or given since; `name` is the first of its path."""
        used = self._began.get(gpu_type, {}).get(name, 0)
        return used + max(0, self.wanted[gpu_type].get(name, 0))

    def use(self, team: str, gpu_type: str, gpus: int, *, rank: int, preemptible: bool) -> None:
        """The team uses so many more: less, if negative."""
        self.changes += 1
        path = self.path(team)
        used = self.used[gpu_type]
        for name in path:
            used[name] += gpus
            self.total[name] += gpus
        if preemptible:
            self.mild[path[0], gpu_type, rank] += gpus
        else:
            firm = self.firm[gpu_type]
            for name in path:
                firm[name] += gpus

    def hold(self, use: Use, gpus: int, *, jobs: int) -> None:
        """The team holds so many more, now and then, and so many more of its jobs have GPUs."""
        self.now.add(self.path(use.team), use.gpu_type, gpus, jobs)
        self.keep(use, gpus, jobs=jobs)

    def wait(self, use: Use, gpus: int, *, jobs: int) -> None:
        """So many jobs of the team, which may run and wait, count as holding what they ask for.

        In an order that does not go by class, who waits gives way to nobody.
        """
        by_class = self._cluster.policy.order in BY_CLASS
        self.hold(use if by_class else use._replace(preemptible=False), gpus, jobs=jobs)

    def keep(self, use: Use, gpus: int, *, jobs: int) -> None:
        """The team will hold so many more, by so many more jobs, once what is decided has happened; less, if negative."""
        path = self.path(use.team)
        self.then.add(path, use.gpu_type, gpus, jobs)
        if use.preemptible:
            self.milder.setdefault(use.rank, Held()).add(path[:1], use.gpu_type, gpus, jobs)

    def less_urgent(self, rank: int) -> list[Held]:
        """What will be held by preemptible jobs of each class below this one, at the first name of each team's path."""
        return [held for of, held in sorted(self.milder.items()) if of > rank]

    def _count_runs(self, cluster: Cluster) -> None:
        for use, gpus in cluster.usage.items():
            left = gpus - cluster.leaving.get(use, 0)
            self.use(use.team, use.gpu_type, left, rank=use.rank, preemptible=use.preemptible)
            self.now.add(self.path(use.team), use.gpu_type, gpus, 0)
            self.keep(use, left, jobs=cluster.staying.get(use, 0))
        for team, tally in cluster.tallies.items():
            if tally.placed:
                self.now.add(self.path(team), ALL_TYPES, 0, tally.placed)

    def _count_wanted(self, cluster: Cluster, at: datetime, without: Mapping[tuple[TeamId, str], int]) -> None:
        stopped = {team for team in cluster.tallies if self._tree.stopped(team)}
        for want, gpus in cluster.wanted.items():
            if want.team not in stopped and (gpu_type := self.type_of(want.gpu_types)):
                self.wanted[gpu_type][self.path(want.team)[0]] += gpus
        for (team, gpu_type), gpus in without.items():
            if team not in stopped:
                self.wanted[gpu_type][self.path(team)[0]] -= gpus
        for (not_before, *_), job_id in islice(cluster.later.line(None), DUE_MAX):
            if not_before > at.timestamp():
                return
            job = cluster.jobs[job_id]
            if not job.cancel and job.hold not in WANT_NOTHING and job.team not in stopped:
                self._want(job, job.shape.gpus)

    def _count_earmarks(self, cluster: Cluster) -> None:
        """What is set aside is used, and what waits for it does not want it once more."""
        for earmark in cluster.earmarks.values():
            job = cluster.jobs[earmark.job_id]
            gpu_type = cluster.nodes[earmark.shares[0].node_id].gpu_type
            gpus = sum(share.slots.bit_count() for share in earmark.shares)
            self.use(job.team, gpu_type, gpus, rank=job.rank, preemptible=job.spec.preemptible)
            self.then.add(self.path(job.team), gpu_type, gpus, 1)
            if earmark.until is not None and job.state is JobState.PLACED:
                self._count_no_more(cluster.runs[run_id_of(job.job_id, job.attempt)])
            if (
                job.state is not JobState.PLACED
                and not job.cancel
                and job.not_before is None
                and job.hold not in WANT_NOTHING
            ):
                self._want(job, -job.shape.gpus)

    def _count_no_more(self, run: Run) -> None:
        """Instead of what a run has that is being stopped, what is kept for its job counts."""
        self.use(run.team, run.gpu_type, -run.gpus, rank=run.rank, preemptible=run.preemptible)
        self.keep(use_of(run), -run.gpus, jobs=-1)

    def _want(self, job: Job, gpus: int) -> None:
        if gpu_type := self.type_of(job.shape.gpu_types):
            self.wanted[gpu_type][self.path(job.team)[0]] += gpus


def type_of(cluster: Cluster, gpu_types: Sequence[str]) -> str:
    """The type for which a job that accepts these counts: see `Standing.wants`."""
    capacity = cluster.capacity
    if not gpu_types:
        return min(capacity, key=lambda gpu_type: (-capacity[gpu_type], gpu_type), default="")
    return next((gpu_type for gpu_type in gpu_types if gpu_type in capacity), "")


def _sums() -> Sums:
    return defaultdict(lambda: defaultdict(int))
