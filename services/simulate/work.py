"""What is to be run in a simulation, and what became of it."""

from typing import Final, NamedTuple

import msgspec

from events.base import JobId, TeamId
from events.job import JobSpec, Priority

US: Final = 1_000_000  # virtual time is whole microseconds since the beginning of the simulation
COMMAND: Final = ("simulated",)


class Work(NamedTuple):
    """A job that will be submitted."""

    job_id: JobId
    team: TeamId
    spec: JobSpec  # `max_runtime_s` is what is declared
    arrives_us: int
    runtime_us: int  # how long it really runs
    group: str = ""  # its class, in reports


class Life(msgspec.Struct):
    """What became of a job. Times are in virtual microseconds; None: it did not happen, or not yet."""

    work: Work
    started_us: int | None = None  # first
    started_last_us: int | None = None
    ended_us: int | None = None
    outcome: str = ""  # "succeeded", "timed_out", …; empty: it still waits or runs
    evictions: int = 0
    promised_us: int | None = None  # the start that was promised first

    @property
    def wait_s(self) -> float | None:
        """From its submission to its first start."""
        return self._after(self.started_us)

    @property
    def completion_s(self) -> float | None:
        """From its submission to its end, if it ran."""
        return self._after(self.ended_us) if self.started_us is not None else None

    @property
    def promise_kept(self) -> bool:
        """Whether it was promised a start, and started no later than it was promised first."""
        return self.promised_us is not None and self.started_us is not None and self.started_us <= self.promised_us

    def _after(self, at_us: int | None) -> float | None:
        return None if at_us is None else (at_us - self.work.arrives_us) / US


def classes_of(values: set[int]) -> dict[int, Priority]:
    """Priority numbers, the larger the more urgent, as our classes.

    One is normal; two are normal and high; three low, normal and high; four are all. Raises `ValueError` for more.
    """
    classes = {
        1: (Priority.NORMAL,),
        2: (Priority.NORMAL, Priority.HIGH),
        3: (Priority.LOW, Priority.NORMAL, Priority.HIGH),
        4: tuple(Priority),
    }
    if len(values) > len(classes):
        raise ValueError(f"there are {len(values)} priorities, and {len(classes)} classes to map them on")
    return dict(zip(sorted(values), classes[len(values) or 1], strict=False))
