"""How a GPU's and a node's history makes a verdict graver than the table's line.

Source: NVIDIA/NVSentinel, docs/configuration/health-events-analyzer.md, for the numbers.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from events.base import GpuUuid
from events.gpu import GpuAction, GpuSignal, Recovery
from projections.cluster.fitness import GRAVITY, LEMON_FAULTS, OUT, Fault, Fitness, Pending
from services.health.table import OFFENDER, REPEATS, RESET_FAILED, Line, Repeat, line_of

DAY: Final = timedelta(days=1)
OFFENDER_FAULTS: Final = 5  # of one GPU in a day
LEMON_WITHIN: Final = timedelta(days=7)
SCORED: Final = timedelta(days=30)
WEIGHTS: Final = {GpuAction.RESTART: 1, GpuAction.RESET: 3, GpuAction.DRAIN: 5, GpuAction.EVICT: 8}
BURST: Final = timedelta(seconds=60)  # faults of one GPU that follow each other within it are one incident


class Verdict(NamedTuple):
    """What is to be done about a sign, and why."""

    rule: str
    line: Line
    score: int = 0


def judge(fitness: Fitness, sign: Pending, at: datetime) -> Verdict:
    """The verdict on a sign, by the table and by what its GPU and its node did before."""
    rule, line = line_of(sign.signal, sign.code)
    if sign.reset_failed:
        rule, line = f"reset failed after {rule}", RESET_FAILED
    elif (repeat := _repeat_of(sign)) is not None and _is_again(fitness.noted, sign, repeat):
        rule, line = f"{rule} twice in 24 h", repeat.line
    if GRAVITY[line.action] and _incidents_with(fitness, sign, at) >= OFFENDER_FAULTS:
        rule, line = f"{OFFENDER_FAULTS} faults in 24 h, the last {rule}", OFFENDER
    helped = _helped(sign, line)
    if helped is not None:
        return Verdict(f"{rule}, {helped.value} since", Line(GpuAction.LOG, line.words), score(fitness, at))
    return Verdict(rule, line, score(fitness, at) + (0 if sign.held_back else WEIGHTS.get(line.action, 0)))


def is_lemon(fitness: Fitness, at: datetime) -> bool:
    """Whether GPUs of the node had to be taken out so often within a week that it is the node that is at fault."""
    since = max(at - LEMON_WITHIN, fitness.undrained_at or at - LEMON_WITHIN)
    return incidents(fault for fault in fitness.history if fault.action in OUT and fault.at > since) >= LEMON_FAULTS


def score(fitness: Fitness, at: datetime) -> int:
    """How much of a lemon the node is: its faults of the last 30 days, by their gravity."""
    return sum(WEIGHTS.get(fault.action, 0) for fault in fitness.history if fault.at > at - SCORED)


def incidents(faults: Iterable[Fault]) -> int:
    """How many there were, those of one GPU that follow each other closely counted once. In order of time."""
    last: dict[GpuUuid, datetime] = {}
    count = 0
    for fault in faults:
        before = last.get(fault.gpu_uuid)
        count += before is None or fault.at - before > BURST
        last[fault.gpu_uuid] = fault.at
    return count


def _incidents_with(fitness: Fitness, sign: Pending, at: datetime) -> int:
    """Of the sign's GPU in a day, with this one; one that the breaker held back is among them already."""
    of_gpu = [fault for fault in fitness.history if fault.gpu_uuid == sign.gpu_uuid and fault.at > at - DAY]
    if not sign.held_back:
        of_gpu.append(Fault(at, sign.gpu_uuid, sign.signal, sign.code, GpuAction.RESTART))
    return incidents(of_gpu)


def _repeat_of(sign: Pending) -> Repeat | None:
    if sign.signal is not GpuSignal.XID:
        return None
    return next((repeat for repeat in REPEATS if repeat.code == sign.code), None)


def _is_again(noted: Iterable[Fault], sign: Pending, repeat: Repeat) -> bool:
    """Whether this GPU showed the same within a day, not just now, and no other of its node did: then it is the software."""
    alike = [one for one in noted if one.signal is sign.signal and one.code == sign.code and one.at > sign.at - DAY]
    own = [one for one in alike if one.gpu_uuid == sign.gpu_uuid]
    return len(alike) == len(own) > 0 and sign.at - own[-1].at > timedelta(seconds=repeat.burst_s)


def _helped(sign: Pending, line: Line) -> Recovery | None:
    return next((means for means in sign.since if means in line.returns_by), None)
