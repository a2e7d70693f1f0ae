"""One turn of all deciders: each sees what those before it said, and all of it becomes one append."""

from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Final

from events.base import Event
from events.head import PassedOver, RoundDecided
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.admission.decide import decide as admission
from services.health.decide import decide as health
from services.lifecycle.decide import decide as lifecycle
from services.scheduler.decide import decide as scheduler

Decider = Callable[[Cluster, Tick], list[Event]]

DECIDERS: Final[tuple[Decider, ...]] = (lifecycle, health, admission, scheduler)  # in this order
PASSED_OVER_MAX: Final = 200  # lines in one decision record, the largest groups first: well below 64 KiB


def decide_all(cluster: Cluster, tick: Tick, *, version: str = "") -> list[Event]:
    """What all deciders say in turn, their record first; nothing when none has anything to say."""
    fork = cluster.fork()
    events: list[Event] = []
    for decide in DECIDERS:
        decided = decide(fork, tick)
        fork = reduce(evolve, map(tick.decided, decided), fork)
        events += decided
    if not events:
        return []
    record = RoundDecided(
        at=tick.at,
        epoch=cluster.epoch,
        decided_at=tick.position,
        events=len(events),
        passed_over=_passed_over(fork),
        version=version,
    )
    return [record, *events]


def _passed_over(fork: Cluster) -> tuple[PassedOver, ...]:
    """Why the jobs that are still waiting for GPUs got none, a line a shape and code."""
    waiting = Counter({group: fork.labelled.count(group) for group in fork.labelled.groups()})
    lines = sorted(waiting.items(), key=lambda line: (-line[1], line[0]))[:PASSED_OVER_MAX]
    return tuple(PassedOver(str(shape), jobs, code.value) for (shape, code), jobs in lines)
