"""When a waiting job may start, and what that rests on: a promise, declared ends of runs, or an honest unknown."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from events.ask import Basis
from events.base import RunId
from events.job import IMPOSSIBLE, HoldCode
from projections.cluster.explain.supply import accepts, suits_kind
from projections.cluster.job import Job, Shape, grace
from projections.cluster.node import Node, NodeState
from projections.cluster.placing.place import WHOLE_NODES_FROM
from projections.cluster.placing.room import domain_of
from projections.cluster.state import Cluster

NODES_MAX: Final = 2_000  # that are looked at for when their runs end
OVER_QUOTA: Final = frozenset(
    {
        HoldCode.OVER_LIMIT,
        HoldCode.OVER_FLOOR,
        HoldCode.OVER_ENTITLEMENT,
        HoldCode.RUNNING_MAX,
    }
)
DEPENDS: Final = {
    HoldCode.FAILED_TOO_OFTEN: "somebody has to resume it",
    HoldCode.QUEUE_PAUSED: "an operator has to resume its queue",
    HoldCode.NO_ACCOUNT: "it cannot start until accounts, or the job, are others",
    HoldCode.NO_PRICE: "it cannot start until prices, or the job, are others",
    HoldCode.CREDITS: "it depends on when its account can pay for it: what is refunded or granted counts at once",
    HoldCode.BEHIND: "it starts after the job that holds up its queue",
    HoldCode.NODES_UNWELL: "it depends on when the nodes are well again",
}


class Estimate(NamedTuple):
    """When a job may start."""

    start: datetime | None
    basis: Basis
    message: str  # one sentence


def estimate(cluster: Cluster, job: Job, code: HoldCode, *, ahead: int, at: datetime) -> Estimate:
    """When a job that waits for `code` may start, as of `at`. Computed anew each time: no estimate outlives its reason."""
    if (earmark := cluster.earmarks.get(job.job_id)) is not None and earmark.until is None:
        return _when_stopped(cluster, earmark.victims, at)
    if (promise := cluster.promises.get(job.job_id)) is not None:
        if promise.start is not None:
            times = "once" if promise.moves == 1 else f"{promise.moves} times"
            moved = f", which has moved {times}" if promise.moves else ""
            return Estimate(max(promise.start, at), Basis.PROMISE, f"it is promised this start{moved}")
        return _unknown("a run on the nodes promised to it has not said how long it takes (max_runtime)")
    match code:
        case HoldCode.BACKING_OFF:
            return Estimate(job.not_before, Basis.BACK_OFF, "its back-off ends then; it may have to wait on")
        case HoldCode.NOT_EVALUATED:
            first = f"{ahead} job{'s are' if ahead > 1 else ' is'} before it" if ahead else "nothing is before it"
            return Estimate(at, Basis.NEXT_ROUND, f"the next round looks at it; {first}")
        case code if code in IMPOSSIBLE:
            return _unknown("it cannot start until the cluster, its queue or the job is another one")
        case code if code in OVER_QUOTA:
            return _unknown("it depends on when its team has less running, or others want less")
        case code if code in DEPENDS:
            return _unknown(DEPENDS[code])
        case _:
            return _when_ended(cluster, job.shape, ahead=ahead, at=at)


def _unknown(why: str) -> Estimate:
    return Estimate(None, Basis.UNKNOWN, why)


def _when_stopped(cluster: Cluster, victims: tuple[RunId, ...], at: datetime) -> Estimate:
    """When the last of these runs is gone, if each takes all of its grace from now on."""
    graces = [grace(cluster.jobs[cluster.runs[run].job_id].spec) for run in victims if run in cluster.runs]
    if not graces:
        return Estimate(at, Basis.PREEMPTED, "those that were stopped for it have given their GPUs back")
    told = "the run that is stopped for it may" if len(graces) == 1 else f"the {len(graces)} runs stopped for it may"
    told += " take as long to save work and stop"
    return Estimate(at + max(graces), Basis.PREEMPTED, told)


# The first moment at which enough nodes have enough free GPUs, if nothing new starts on them


def _when_ended(cluster: Cluster, shape: Shape, *, ahead: int, at: datetime) -> Estimate:
    freed, undeclared = [], 0
    for node in islice(_nodes(cluster, shape), NODES_MAX):
        ends, silent = _ends(cluster, node, at)
        undeclared += silent
        freed.append(_Freed(node, ends))
    starts = [when for part in _parts(shape, freed) if (when := _first_start(part, shape)) is not None]
    if not starts:
        if undeclared:
            return _unknown(f"{undeclared} of the runs on the nodes it could use have not declared a max_runtime")
        return _unknown(f"the first {NODES_MAX} nodes never hold it" if len(freed) == NODES_MAX else "runs do not say")
    whoever = "the job" if ahead == 1 else f"one of the {ahead} jobs"
    before = f", unless {whoever} before it takes what they leave" if ahead else ""
    return Estimate(min(starts), Basis.DECLARED_ENDS, f"not before that: enough runs end by then, as declared{before}")


class _Freed(NamedTuple):
    """A node, and when more of its GPUs are free: (moment, GPUs free from then on), in order."""

    node: Node
    ends: list[tuple[datetime, int]]

    def when(self, gpus: int) -> datetime | None:
        """The first moment at which so many are free; None for never."""
        return next((moment for moment, free in self.ends if free >= gpus), None)


def _nodes(cluster: Cluster, shape: Shape) -> Iterator[Node]:
    for node in cluster.nodes.values():
        if accepts(shape, node.gpu_type) and node.state is NodeState.UP and not node.closed and suits_kind(shape, node):
            yield node


def _ends(cluster: Cluster, node: Node, at: datetime) -> tuple[list[tuple[datetime, int]], int]:
    """When more GPUs of a node are free, and how many runs there do not say. What is set aside stays so."""
    free = node.spare.bit_count()
    ends, silent = [(at, free)], 0
    declared = []
    for run_id, slots in node.held.items():
        end = cluster.runs[run_id].end
        if end is None:
            silent += 1
        else:
            declared.append((max(end, at), (slots & ~node.marked).bit_count()))
    for moment, gpus in sorted(declared):
        free += gpus
        ends.append((moment, free))
    return ends, silent


def _parts(shape: Shape, freed: list[_Freed]) -> Iterator[list[_Freed]]:
    """The nodes that a gang may be on together: of one type, and in one domain where it must be."""
    within = shape.within if shape.required else ""
    parts: dict[tuple[str, tuple[str, str], str], list[_Freed]] = {}
    for one in freed:
        domain = domain_of(one.node.place, within) if within else ("", "")
        alone = one.node.node_id if within and not any(domain) else ""  # where it stands, nobody said
        parts.setdefault((one.node.gpu_type, domain, alone), []).append(one)
    yield from parts.values()


def _first_start(part: list[_Freed], shape: Shape) -> datetime | None:
    """When a gang could be on some of these nodes, by the rules of placement; None for never."""
    if shape.nodes:
        each = shape.gpus_per_node
        return _nth(part, each, -(-shape.min_gpus // each) if shape.min_gpus else shape.nodes)
    gpus = shape.min_gpus or shape.gpus
    if gpus < WHOLE_NODES_FROM and (single := _nth(part, gpus, 1)) is not None:
        return single
    starts = []
    for size in sorted({one.node.size for one in part if one.node.size}):
        whole, rest = divmod(gpus, size)
        of_size = [one for one in part if one.node.size == size]
        when = [_nth(of_size, size, whole)] if whole else []
        when += [_nth(part, rest, whole + 1 if size >= rest else 1)] if rest else []
        if when and all(when):
            starts.append(max(moment for moment in when if moment is not None))
    return min(starts, default=None)


def _nth(part: list[_Freed], gpus: int, nodes: int) -> datetime | None:
    """When so many of the nodes have so many GPUs free; None for never."""
    moments = sorted(moment for one in part if (moment := one.when(gpus)) is not None)
    return moments[nodes - 1] if 0 < nodes <= len(moments) else None
