"""Charges as a test wants them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from events.base import AccountId, JobId, Position, RunId, TeamId
from projections.cluster.credit.price import cost_micro
from projections.tables.charges import Charge, ChargeKind
from services.billing.exact import Exact
from services.billing.focus import Sheet
from services.billing.month import Month

NOVEMBER = Month(2026, 11)
AT = datetime(2026, 11, 7, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
NANO = 2_500_000_000  # 2.5 credits an hour
SHEET = Sheet(NOVEMBER, provider="Compute Ltd", region="one", log_id="log-1")
SOLD = SHEET._replace(currency="USD", rate=Exact(40, 2))


def used(gpu_us: int = 3_600_000_000, **changed: Any) -> Charge:
    """An hour of a GPU, or as much as is said."""
    known: dict[str, Any] = {
        "account": AccountId("vision"),
        "began": AT,
        "id": "j1-1-1",
        "kind": ChargeKind.USAGE,
        "entry": 7,
        "run_id": RunId("j1-1"),
        "job_id": JobId("j1"),
        "team": TeamId("vision"),
        "gpu_type": "h100",
        "gpu_us": gpu_us,
        "amount_micro": cost_micro(gpu_us, NANO),
        "nano_per_gpu_hour": NANO,
        "from_at": AT,
        "to_at": AT + HOUR,
        "corrects": False,
        "cause": "",
        "prices": Position(12),
        "counted_at": AT,
        "reason": "",
        "of_entry": 0,
        "at": AT + HOUR,
        "position": Position(1000),
        "event_id": "e-1",
    }
    return Charge(**(known | changed))


def entered(kind: ChargeKind, amount_micro: int, **changed: Any) -> Charge:
    """An entry that is no record of use."""
    known: dict[str, Any] = {
        "id": "0000000007",
        "kind": kind,
        "run_id": None,
        "job_id": None,
        "team": None,
        "gpu_type": "",
        "amount_micro": amount_micro,
        "nano_per_gpu_hour": 0,
        "to_at": AT,
        "prices": Position(0),
        "at": AT,
    }
    return used(0, **(known | changed))
