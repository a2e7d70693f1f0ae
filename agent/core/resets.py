"""Which GPUs are to be reset now: those that are wanted so, once nothing holds them, not too often and not for ever."""

from collections.abc import Iterable
from typing import Final

import msgspec

from events.base import GpuUuid

TRIES_MAX: Final = 5
AGAIN_FIRST_S: Final = 30.0  # after a reset that failed; then twice as long, and so on
AGAIN_MAX_S: Final = 600.0


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """How resetting one GPU goes that is wanted reset."""

    failures: int = 0
    failed_s: float = 0.0  # when the last one was, on the machine's monotonic clock
    done: bool = False  # it was reset, and showed nothing new since
    under_way: bool = False


UNTRIED: Final = Trial()


def due(
    wanted: Iterable[GpuUuid], held: frozenset[GpuUuid], trials: dict[GpuUuid, Trial], now_s: float
) -> tuple[GpuUuid, ...]:
    """Those to reset, the first to be asked for first."""
    return tuple(gpu for gpu in wanted if gpu not in held and _is_due(trials.get(gpu, UNTRIED), now_s))


def _is_due(trial: Trial, now_s: float) -> bool:
    if trial.done or trial.under_way or trial.failures >= TRIES_MAX:
        return False
    return not trial.failures or now_s - trial.failed_s >= min(AGAIN_FIRST_S * 2 ** (trial.failures - 1), AGAIN_MAX_S)
