"""Which GPUs may be reset now of those that are wanted so: not twice for one cause, not too often, and not for ever."""

from typing import Final

import msgspec

from events.base import GpuUuid

TRIES_MAX: Final = 5
AGAIN_FIRST_S: Final = 30.0  # after a reset that failed; then twice as long, and so on
AGAIN_MAX_S: Final = 600.0


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """How resetting a GPU went so far, for as long as it is wanted."""

    failures: int = 0
    failed_s: float = 0.0  # when the last one was, on the machine's monotonic clock
    done: bool = False  # it was reset, and showed nothing new since


def unready(trials: dict[GpuUuid, Trial], now_s: float) -> frozenset[GpuUuid]:
    """Those that are not to be reset now, whoever wants it."""
    return frozenset(gpu for gpu, trial in trials.items() if not _may_try(trial, now_s))


def _may_try(trial: Trial, now_s: float) -> bool:
    if trial.done or trial.failures >= TRIES_MAX:
        return False
    again_s = min(AGAIN_FIRST_S * 2 ** (trial.failures - 1), AGAIN_MAX_S) if trial.failures else 0.0
    return now_s - trial.failed_s >= again_s or not trial.failures
