"""One turn of all deciders: each sees what those before it said, and all of it becomes one append."""

from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Final

from events.base import Event
from events.head import PassedOver, RoundDecided
from events.job import HoldCode, JobHeld, JobPlaced
from events.log.port import BATCH_MAX
from projections.cluster.evolve import evolve
from projections.cluster.job import Shape
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.admission.decide import decide as admission
from services.health.decide import decide as health
from services.ledger.decide import decide as ledger
from services.lifecycle.decide import decide as lifecycle
from services.scheduler.decide import decide as scheduler

Decider = Callable[[Cluster, Tick], list[Event]]

DECIDERS: Final[tuple[Decider, ...]] = (lifecycle, health, ledger, admission, scheduler)  # in this order
PASSED_OVER_MAX: Final = 200  # lines in one decision record, the largest groups first: well below 64 KiB


def decide_all(cluster: Cluster, tick: Tick, *, version: str = "") -> list[Event]:
    """What all deciders say in turn, their record first; nothing when none has anything to say.

    Each bounds what it says, and together they may say more than an append takes: then the last have their turn once
    those before them have less to say.
    """
    fork = cluster.fork()
    events: list[Event] = []
    decided: list[Event] = []
    for decide in DECIDERS:
        fork, decided = reduce(evolve, map(tick.decided, decided), fork), []
        said = decide(fork, tick)
        if len(events) + len(said) >= BATCH_MAX:  # with their record
            break
        decided = said
        events += decided
    if not events:
        return []
    record = RoundDecided(
        at=tick.at,
        epoch=cluster.epoch,
        decided_at=tick.position,
        events=len(events),
        passed_over=_passed_over(fork, decided),
        version=version,
    )
    return [record, *events]


def _passed_over(fork: Cluster, decided: list[Event]) -> tuple[PassedOver, ...]:
    """Why the jobs that still wait got no GPUs, a line a shape and code. `decided` is not in the fork yet."""
    waiting: Counter[tuple[Shape, HoldCode]] = Counter()
    for jobs_of in (fork.admitted, fork.queue):
        for line in jobs_of.groups():
            waiting[line.shape, line.hold] += jobs_of.count(line)
    for event in decided:
        match event:
            case JobPlaced() | JobHeld():
                job = fork.jobs[event.job_id]
                waiting[job.shape, job.hold] -= 1
                if isinstance(event, JobHeld):
                    waiting[job.shape, event.code] += 1
            case _:
                pass
    told: Counter[tuple[str, HoldCode]] = Counter()  # shapes of the same words are one
    for (shape, hold), jobs in waiting.items():
        told[str(shape), hold] += jobs
    lines = sorted(((line, jobs) for line, jobs in told.items() if jobs), key=lambda line: (-line[1], line[0]))
    return tuple(PassedOver(shape, jobs, hold.value) for (shape, hold), jobs in lines[:PASSED_OVER_MAX])
