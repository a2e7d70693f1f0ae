"""The rungs of a stop: checkpoint signal, TERM, KILL, each after its time. And when a node without contact begins one."""

from typing import Final

from agent.core.found import Step, Trace, Why
from events.job import JobSpec, OnLost

TIME_LIMIT_SLACK_S: Final = (
    5.0  # the limit counts from the start of the last rank, and other nodes may be late with theirs
)
ABRUPT: Final = frozenset({Why.RANK_FAILED, Why.START_FAILED})  # the gang is broken: nobody can save anything


def due(spec: JobSpec, why: Why, age_s: float, lost_after_s: float) -> Step:
    """The rung that a stop of this age should have reached."""
    term_s, kill_s = rungs_s(spec, why, lost_after_s)
    if age_s >= kill_s:
        return Step.KILL
    return Step.TERM if age_s >= term_s else Step.CHECKPOINT


def rungs_s(spec: JobSpec, why: Why, lost_after_s: float) -> tuple[float, float]:
    """When TERM and when KILL come, in seconds from the begin of a stop.

    A node without contact must be done before others start its jobs: there both are pressed together.
    """
    term_s = float(spec.checkpoint.grace_s) if spec.checkpoint and why not in ABRUPT else 0.0
    kill_s = term_s + spec.stop_grace_s
    if why is Why.ISOLATED:
        most_s = lost_after_s / 4
        term_s = min(term_s, most_s / 2)
        kill_s = min(kill_s, most_s)
    return term_s, kill_s


def isolated(spec: JobSpec, silent_s: float, lost_after_s: float) -> bool:
    """Whether the node was without contact for so long that the job must be ended here before it begins elsewhere.

    At `lost_after_s` less twice the time that its stop takes, but not before half of `lost_after_s`.
    """
    grace_s = spec.stop_grace_s + (spec.checkpoint.grace_s if spec.checkpoint else 0)
    return spec.on_lost is OnLost.RESTART and silent_s >= max(lost_after_s / 2, lost_after_s - 2 * grace_s)


def over_time(trace: Trace) -> bool:
    """Whether the run reached its time limit, by this node's own share of it."""
    limit_s = trace.share.spec.max_runtime_s
    slack_s = TIME_LIMIT_SLACK_S if trace.share.nodes > 1 else 0.0
    return limit_s > 0 and trace.age_s >= limit_s + slack_s


def unkillable(trace: Trace, after_s: float) -> bool:
    """Whether processes of the run live on so long after KILL that they may do so for ever."""
    return trace.alive and trace.stopping is not None and trace.stopping.killed_s >= after_s
