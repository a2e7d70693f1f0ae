"""Clocks of simulated processes, which may be wrong; and the real ones, which nobody may read meanwhile."""

import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

from tests.sim.loop import VirtualLoop

BEGIN: Final = datetime(2026, 1, 31, 23, 55, tzinfo=UTC)  # an hour, a day and a month end soon

REAL: Final = (
    (time, "time"),
    (time, "time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "perf_counter"),
    (time, "sleep"),
    (random, "random"),
    (random, "randrange"),
    (random, "choice"),
    (random, "shuffle"),
    (os, "urandom"),
    (uuid, "uuid4"),
    (secrets, "token_hex"),
    (secrets, "token_bytes"),
    (secrets, "randbelow"),
    (threading, "Thread"),
)


class SimClock:
    """The clock of one machine: `ahead_s` of the true time of day, and of its own for spans."""

    def __init__(self, loop: VirtualLoop, *, since_s: float = 0.0, ahead_s: float = 0.0) -> None:
        self._loop = loop
        self._since_s = since_s  # when its machine started
        self.ahead_s = ahead_s

    def now(self) -> datetime:
        """The time of day, right or wrong."""
        return BEGIN + timedelta(seconds=round(self._loop.time() + self.ahead_s, 6))

    def monotonic(self) -> float:
        """Seconds since the machine started."""
        return self._loop.time() - self._since_s


@contextmanager
def no_real_time() -> Iterator[None]:
    """Reading a real clock, drawing real chance, waiting and threads are errors until the block is left."""

    def refused(name: str) -> Any:
        def refuse(*_args: object, **_named: object) -> None:
            raise RuntimeError(f"{name} was used in a simulation: what it gives would be another at each replay")

        return refuse

    patches = [patch.object(module, name, refused(f"{module.__name__}.{name}")) for module, name in REAL]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
