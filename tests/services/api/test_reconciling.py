"""Reconciling by itself: one run at a time, errors in the log of the process, and metrics of the last run."""

import asyncio

import msgspec
import pytest
import structlog.testing

from runtime.clock import ManualClock
from runtime.fault import Fault
from services.api.reconciling import Reconciling
from tests.fixtures.waiting import until

SAME = {"same": True, "position": 9, "accounts": {"a": {}}, "alarms": [], "misfits": [], "findings": [], "broken": 0}
DIFFERS = SAME | {"same": False, "alarms": [{"account": "a", "what": "balance_micro"}] * 30, "broken": 2}


def told(reconciling: Reconciling) -> dict[str, float]:
    """The metrics."""
    return {metric.name: metric.samples[0].value for metric in reconciling.collect()}


async def test_what_differs_is_an_error_and_a_metric_until_it_is_mended() -> None:
    """The first few are named in the line."""
    answers = [DIFFERS, SAME]
    clock = ManualClock()

    async def reconcile() -> bytes:
        return msgspec.json.encode(answers.pop(0))

    reconciling = Reconciling(reconcile, clock)
    assert told(reconciling) == {}
    with structlog.testing.capture_logs() as lines:
        await reconciling.run()
        assert told(reconciling) == {
            "muster_credits_differ": 32,
            "muster_credits_reconciled_seconds": clock.now().timestamp(),
        }
        await reconciling.run()
    assert told(reconciling)["muster_credits_differ"] == 0
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("credits_differ", "error"),
        ("credits_reconciled", "info"),
    ]
    assert len(lines[0]["alarms"]) == 20


async def test_it_comes_by_itself_and_goes_on_after_a_fault() -> None:
    """Servers may be away for a while."""
    runs = 0

    async def reconcile() -> bytes:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise Fault("away", "Nobody is there.")
        return msgspec.json.encode(SAME)

    with structlog.testing.capture_logs() as lines:
        keeping = asyncio.create_task(Reconciling(reconcile, ManualClock()).keep(0.024))
        await until(lambda: runs >= 3)
        keeping.cancel()
        await asyncio.wait({keeping})
    assert [line["event"] for line in lines][:3] == [
        "credits_not_reconciled",
        "credits_reconciled",
        "credits_reconciled",
    ]


async def test_where_it_is_turned_off_it_ends_at_once() -> None:
    """And a process that cannot do it says so."""
    reconciling = Reconciling(None, ManualClock())
    await reconciling.keep(0)
    assert not reconciling.busy
    with pytest.raises(Fault, match="reconciles nothing"):
        await reconciling.run()
