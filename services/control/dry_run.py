"""What would become of a job that is submitted now: the deciders themselves, on a fork that is thrown away."""

from functools import reduce
from typing import Final

from msgspec.structs import replace

from events.ask import DryRun, DryRunAsk, Outcome
from events.base import Event, JobId, Position, RunId, job_id_of
from events.job import GpusEarmarked, JobPlaced, JobRejected, JobSubmitted, NodeShare, StartPromised
from projections.cluster.evolve import evolve
from projections.cluster.explain.charge import Charge, charge_of
from projections.cluster.explain.why import explain
from projections.cluster.job import Job
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.control.round import decide_all

ROUNDS_MAX: Final = 4  # the loop that decides stands still meanwhile: each takes up to 100 ms
TRIED: Final = JobId("dry-run")  # no job is called that: ids are j and 13 characters


def dry_run(cluster: Cluster, ask: DryRunAsk, tick: Tick) -> DryRun:
    """The answer as of `tick.position`; `cluster` stays as it is.

    The job is the youngest of all. Rounds are decided until one of them says what becomes of it, or nothing more is
    decided; at most `ROUNDS_MAX`.
    """
    tick = replace(tick, position=Position(tick.position + 1))
    submitted = JobSubmitted(
        at=tick.at, team=ask.team, job_id=TRIED, spec=ask.spec, key=TRIED, request_hash=""
    )  # fmt: skip
    fork = evolve(cluster.fork(), tick.decided(submitted))
    job = fork.jobs[TRIED]
    charge = charge_of(fork, job, tick.at)
    said: Event | None = None
    for _ in range(ROUNDS_MAX):
        decided = decide_all(fork, tick)
        fork = reduce(evolve, map(tick.decided, decided), fork)
        said = _about(decided) or said
        if not decided or not (said is None or isinstance(said, StartPromised)):
            return _charged(replace(_answer(fork, job, said, tick), position=cluster.position), charge)
    if said is not None:
        return _charged(replace(_answer(fork, job, said, tick), position=cluster.position), charge)
    message = "more jobs are decided before it than a dry run waits for"
    return _charged(DryRun(position=cluster.position, outcome=Outcome.NOT_EVALUATED, message=message), charge)


def _charged(answer: DryRun, charge: Charge) -> DryRun:
    """With what would be reserved for it; what is short, as the rounds left it."""
    left = answer.why.short_micro if answer.why is not None else 0
    return replace(
        answer,
        account=charge.account,
        reserves_micro=charge.micro,
        short_micro=charge.short if answer.outcome is Outcome.NOT_EVALUATED else left,
        charge=charge.told,
    )


def _about(decided: list[Event]) -> Event | None:
    """What a round said of the job that settles it; its last word."""
    settles = (JobPlaced, GpusEarmarked, StartPromised, JobRejected)
    return next((e for e in reversed(decided) if isinstance(e, settles) and e.job_id == TRIED), None)


def _answer(fork: Cluster, job: Job, said: Event | None, tick: Tick) -> DryRun:
    match said:
        case JobRejected():
            return DryRun(position=tick.position, outcome=Outcome.REJECTED, code=said.code, message=said.message)
        case JobPlaced():
            answer = _on(fork, job, said.shares, tick)
            return replace(answer, outcome=Outcome.STARTS, message=f"{job.shape} start at once")
        case GpusEarmarked():
            answer = _on(fork, job, said.shares, tick)
            outcome = Outcome.MOVES if said.moved else Outcome.PREEMPTS
            return _waiting(fork, replace(answer, outcome=outcome, preempts=_jobs(said.victims)), tick)
        case StartPromised():
            return _waiting(fork, replace(_on(fork, job, said.shares, tick), outcome=Outcome.PROMISED), tick)
        case _:
            return _waiting(fork, replace(_on(fork, job, (), tick), outcome=Outcome.WAITS), tick)


def _jobs(runs: tuple[RunId, ...]) -> tuple[str, ...]:
    return tuple(job_id_of(run_id) for run_id in runs)


def _on(fork: Cluster, job: Job, shares: tuple[NodeShare, ...], tick: Tick) -> DryRun:
    """The answer's part about GPUs: where, how many, and what of them its team would borrow."""
    nodes: dict[str, int] = {share.node_id: share.slots.bit_count() for share in shares}
    gpus = sum(nodes.values()) or job.shape.gpus
    standing = Standing(fork, tick.at)
    gpu_type = fork.nodes[shares[0].node_id].gpu_type if shares else standing.wants(job.shape.gpu_types)
    used = standing.used(job.team, gpu_type)
    if fork.runs.get(RunId(f"{TRIED}-1")) is None and TRIED not in fork.earmarks:
        used += gpus  # not counted yet: it only waits
    entitled = standing.entitled(job.team, gpu_type)
    return DryRun(
        position=tick.position,
        nodes=nodes,
        gpu_type=gpu_type,
        gpus=gpus,
        entitled=entitled,
        used=used,
        borrowed=max(0, used - entitled),
    )


def _waiting(fork: Cluster, answer: DryRun, tick: Tick) -> DryRun:
    """With the reason, which is the one that `why` would give."""
    why = explain(fork, TRIED, at=tick.at)
    return replace(answer, code=why.code, message=why.message, why=why)
