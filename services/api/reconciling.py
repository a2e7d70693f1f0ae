"""Reconciling of credits: one run at a time, and what the last one found, in the log of the process and as metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.clock import Clock
from runtime.fault import Fault
from runtime.logging import get_logger

logger = get_logger(__name__)

FIRST_PART: Final = 24  # of the time between two runs, until the first: processes are restarted
NAMED_MAX: Final = 20  # alarms and findings in one log line

Reconcile = Callable[[], Awaitable[bytes]]  # what was compared, as JSON; raises `Fault`


class Reconciling(Collector):
    """One run at a time, and what the last one found: as metrics."""

    def __init__(self, reconcile: Reconcile | None, clock: Clock) -> None:
        self._reconcile = reconcile
        self._clock = clock
        self._alone = asyncio.Lock()
        self._differs: int | None = None
        self._at_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._alone.locked()

    async def run(self) -> bytes:
        """What was compared, as JSON. What differs is an error in the log of this process. Raises `Fault`."""
        if self._reconcile is None:
            raise Fault("not_here", "This process reconciles nothing.", "Run muster credits reconcile.")
        async with self._alone:
            said = await self._reconcile()
        found: dict[str, Any] = msgspec.json.decode(said)
        self._differs = 0 if found["same"] else max(1, len(found["alarms"]) + found["broken"])
        self._at_s = self._clock.now().timestamp()
        if found["same"]:
            logger.info("credits_reconciled", accounts=len(found["accounts"]), position=found["position"])
        else:
            named = {name: found[name][:NAMED_MAX] for name in ("alarms", "misfits", "findings")}
            logger.error("credits_differ", differs=self._differs, position=found["position"], **named)
        return said

    async def keep(self, every_s: float) -> None:
        """Never returns: credits are reconciled soon after the start, and from then on every so often. 0: never."""
        wait_s = every_s / FIRST_PART
        while every_s:
            await asyncio.sleep(wait_s)
            wait_s = every_s
            try:
                await self.run()
            except Fault as fault:
                logger.error("credits_not_reconciled", code=fault.code, sentence=fault.sentence, hint=fault.hint)

    def collect(self) -> Iterator[Metric]:
        """See `Collector`. Nothing before the first run."""
        if self._differs is not None:
            differs = GaugeMetricFamily("muster_credits_differ", "Sums and laws that the last reconciling found wrong.")
            differs.add_metric((), self._differs)
            at = GaugeMetricFamily("muster_credits_reconciled_seconds", "When credits were reconciled last, Unix time.")
            at.add_metric((), self._at_s)
            yield from (differs, at)
