"""Why a job waits, with the numbers of the moment; computed from the fold when asked, never stored."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Final

from msgspec.structs import replace

from events.ask import Tier, Why
from events.base import JobId, NodeId, RunId, run_id_of
from events.job import UNPAID, HoldCode, NodeShare, OnLost
from projections.cluster.avoid import forgiven
from projections.cluster.explain.charge import Charge, charge_of
from projections.cluster.explain.estimate import estimate
from projections.cluster.explain.reason import reason_of, tier_of
from projections.cluster.explain.sentences import Case, count, said, some
from projections.cluster.explain.supply import accepts, supply
from projections.cluster.explain.turn import Turn, turn_of
from projections.cluster.job import Job, JobState, Run, Shape
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster

BLOCKERS_MAX: Final = 5
LOOKED_AT_MAX: Final = 10_000  # runs, for the largest among them
TOLD_MAX: Final = 20  # nodes or jobs in one answer
NUMBERED: Final = frozenset(  # the codes whose queue's numbers are told
    {HoldCode.EXCEEDS_LIMIT, HoldCode.EXCEEDS_FLOOR, HoldCode.OVER_LIMIT, HoldCode.OVER_FLOOR, HoldCode.RUNNING_MAX}
)


def explain(cluster: Cluster, job_id: JobId, *, at: datetime) -> Why:
    """The state of a job and, while it waits, the reason: need and have, who is before it, who holds what it needs, when.

    The code is the one that a round would log, if all it depends on stays as it is.
    """
    cluster = forgiven(cluster, at)
    job = cluster.jobs.get(job_id)
    if job is None:
        return Why(job_id=job_id, found=False, position=cluster.position, at=at)
    if job.state is JobState.PLACED:
        return with_charge(replace(_of_placed(cluster, job), at=at, team=job.team), charge_of(cluster, job, at))
    standing = Standing(cluster, at)
    reason = reason_of(cluster, job, standing, at=at)
    case = Case(cluster, job, reason, standing, supply(cluster, job.shape), standing.wants(job.shape.gpu_types), at)
    return with_charge(_of_waiting(case), charge_of(cluster, job, at))


def with_charge(why: Why, charge: Charge) -> Why:
    """The answer, with the credits of the job."""
    return replace(
        why,
        account=charge.account,
        reserves_micro=charge.micro,
        has_micro=charge.has,
        short_micro=charge.short,
        charge=charge.told,
    )


def _of_waiting(case: Case) -> Why:
    cluster, job, (code, block, behind) = case.cluster, case.job, case.reason
    tier = tier_of(code)
    turn = Turn(0, None)  # what is held or impossible takes none
    if tier not in {Tier.HELD, Tier.IMPOSSIBLE} and code not in UNPAID:
        turn = turn_of(cluster, job, case.standing, among_all=tier is not Tier.OVER_QUOTA)
    message, action = said(case)
    when = estimate(cluster, job, code, ahead=turn.ahead, at=case.at)
    return Why(
        job_id=job.job_id,
        found=True,
        position=cluster.position,
        at=case.at,
        state=job.state.value,
        team=job.team,
        code=code.value,
        tier=tier.value,
        message=message,
        need=_need(job.shape),
        have=dict(case.have),
        ahead=turn.ahead,
        behind=behind or turn.behind or "",
        blockers=_blockers(case),
        next_action=action,
        queue=block.queue if block is not None else "",
        limit=block.bound if block is not None and code in NUMBERED else None,
        gpu_type=case.gpu_type,
        entitled=case.standing.entitled(job.team, case.gpu_type),
        used=case.standing.used(job.team, case.gpu_type),
        preempting=_preempting(cluster, job.job_id),
        reserved=_reserved(cluster, job.job_id),
        estimated_start=when.start,
        basis=when.basis.value,
        estimate=when.message,
    )


def _of_placed(cluster: Cluster, job: Job) -> Why:
    run = cluster.runs[run_id_of(job.job_id, job.attempt)]
    nodes = some([share.node_id for share in run.shares])
    if run.stopping is not None:
        waits = (run.all & ~run.released & ~run.dead).bit_count()
        for_whom = f" for {run.evicted_for}" if run.evicted_for else ""
        state = "stopping"
        message = (
            f"it is stopping ({run.stopping}{for_whom});"
            f" {waits} of {count(len(run.shares), 'node')} {'holds' if waits == 1 else 'hold'} GPUs still{_waited_for(run)}"
        )
    elif run.started_at is not None:
        state, message = "running", f"it runs on {nodes}"
    else:
        started = f"{run.started.bit_count()} of {count(len(run.shares), 'node')}"
        verb = "has" if run.started.bit_count() == 1 else "have"
        state, message = "placed", f"it has its GPUs on {nodes}; {started} {verb} started"
    return Why(job_id=job.job_id, found=True, position=cluster.position, state=state, message=message)


def _waited_for(run: Run) -> str:
    """The lost nodes without whose word, or an operator's, the run is not over."""
    lost = run.dead & ~run.released & ~run.clean if run.on_lost is OnLost.WAIT else 0
    nodes = [share.node_id for share in run.shares if run.bit(share.node_id) & lost]
    return f"; by on_lost: wait it waits for {some(nodes)} to come back clean, or to be retired" if nodes else ""


def _need(shape: Shape) -> dict[str, int]:
    need = {
        "gpus": shape.gpus,
        "min_gpus": shape.min_gpus,
        "nodes": shape.nodes,
        "gpus_per_node": shape.gpus_per_node,
    }
    return {name: number for name, number in need.items() if number}


# Who has what it needs


def _blockers(case: Case) -> tuple[str, ...]:
    """The jobs that hold what it waits for, the largest first; none where no end of a job would help."""
    cluster, job = case.cluster, case.job
    match case.reason.code:
        case HoldCode.NO_ROOM | HoldCode.SCATTERED | HoldCode.NODES_UNWELL:
            return _largest(run for run in _runs(cluster) if accepts(job.shape, run.gpu_type))
        case HoldCode.OVER_LIMIT | HoldCode.OVER_FLOOR | HoldCode.OVER_ENTITLEMENT | HoldCode.RUNNING_MAX:
            mine = (run for run in _runs(cluster) if run.team == job.team)
            return _largest(run for run in mine if accepts(job.shape, run.gpu_type))
        case HoldCode.PROMISED:
            return _largest(_holding(cluster, cluster.promises[job.job_id].shares))
        case HoldCode.WAITS_FOR_PREEMPTED:
            return _largest(_holding(cluster, cluster.earmarks[job.job_id].shares))
        case HoldCode.CREDITS:
            return _dearest(cluster, charge_of(cluster, job, case.at).account)
        case HoldCode.RESERVED | HoldCode.BEHIND:
            return (case.reason.behind,) if case.reason.behind is not None else ()
        case _:
            return ()


def _runs(cluster: Cluster) -> Iterable[Run]:
    """The first so many of the runs that have not ended."""
    return (run for run in islice(cluster.runs.values(), LOOKED_AT_MAX) if not run.over)


def _holding(cluster: Cluster, shares: tuple[NodeShare, ...]) -> Iterable[Run]:
    """The runs that hold some of the GPUs of these shares."""
    found: dict[RunId, Run] = {}
    for share in shares:
        node = cluster.nodes.get(NodeId(share.node_id))
        if node is not None:
            found |= {run_id: cluster.runs[run_id] for run_id, slots in node.held.items() if slots & share.slots}
    return found.values()


def _largest(runs: Iterable[Run]) -> tuple[str, ...]:
    gpus = {run.job_id: run.gpus for run in runs}
    return tuple(sorted(gpus, key=lambda job_id: (-gpus[job_id], job_id))[:BLOCKERS_MAX])


def _dearest(cluster: Cluster, account: str) -> tuple[str, ...]:
    """The jobs for which most is reserved on an account, among the first so many reservations."""
    bills = (bill for bill in islice(cluster.credits.bills.values(), LOOKED_AT_MAX) if bill.end is None)
    reserved = {bill.job_id: bill.reserved_micro for bill in bills if bill.account == account and bill.reserved_micro}
    return tuple(sorted(reserved, key=lambda job_id: (-reserved[job_id], job_id))[:BLOCKERS_MAX])


def _preempting(cluster: Cluster, job_id: JobId) -> tuple[str, ...]:
    earmark = cluster.earmarks.get(job_id)
    victims = earmark.victims if earmark is not None else ()
    return tuple(cluster.runs[run].job_id for run in victims if run in cluster.runs)[:TOLD_MAX]


def _reserved(cluster: Cluster, job_id: JobId) -> tuple[str, ...]:
    """The nodes that are set aside for it, or drain towards it."""
    kept = cluster.earmarks.get(job_id) or cluster.promises.get(job_id)
    return tuple(share.node_id for share in kept.shares[:TOLD_MAX]) if kept is not None else ()
