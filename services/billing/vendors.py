"""Records of use as events for metering systems. Each is known by the log and its CloudEvents id, and by it sent only once.

An event's id is unique in its log; a metering system may hear of several.
Source: Lago, events (POST /api/v1/events); Stripe, meter events (POST /v1/billing/meter_events). OpenMeter takes the
stored CloudEvents as they are.
"""

from typing import Any, Final

import msgspec

from projections.cluster.credit.price import HOUR_US, half_even
from projections.tables.charges import Charge
from services.billing.columns import CREDITS, QUANTITY
from services.billing.exact import Exact

METER: Final = "gpu_hours"  # of Lago, the billable metric's code; of Stripe, the meter's event name
CENTS: Final = 2
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def lago(charge: Charge, log_id: str, rate: Exact | None) -> bytes:
    """The body that Lago takes, on one line. A correction is negative, and of the time at which it was made.

    The time is in whole seconds, so that it is the same in every attempt: some of Lago's stores tell events apart by it.
    """
    event: dict[str, Any] = {
        "transaction_id": known_as(charge, log_id),
        "external_subscription_id": charge.account,
        "code": METER,
        "timestamp": _seconds(charge),
        "properties": {
            "gpu_hours": str(_gpu_hours(charge)),
            "gpu_seconds": str(Exact(charge.gpu_us, CREDITS)),
            "credits": str(Exact(charge.amount_micro, CREDITS)),
            "gpu_type": charge.gpu_type,
            "team": charge.team,
            "job_id": charge.job_id,
            "run_id": charge.run_id,
            "usage_id": charge.id,
            "corrects": charge.corrects,
        },
    }
    if rate is not None:
        cents = Exact(charge.amount_micro, CREDITS).times(rate).times(Exact(10**CENTS))
        event["precise_total_amount_cents"] = str(cents)
    return _encode({"event": event}) + b"\n"


def stripe(charge: Charge, log_id: str) -> bytes:
    """The fields of a meter event of Stripe, on one line. A correction is a negative quantity.

    The customer is the account's name: what Stripe calls that customer is for the sender to put there.
    """
    event = {
        "event_name": METER,
        "identifier": known_as(charge, log_id),
        "timestamp": _seconds(charge),
        "payload": {"stripe_customer_id": charge.account, "value": str(_gpu_hours(charge))},
    }
    return _encode(event) + b"\n"


def known_as(charge: Charge, log_id: str) -> str:
    """What a second try is told by, for ever and wherever it is sent to."""
    return f"{log_id}-{charge.event_id}"


def _gpu_hours(charge: Charge) -> Exact:
    """To the nearest thousand-millionth of an hour."""
    return Exact(half_even(charge.gpu_us * 10**QUANTITY, HOUR_US), QUANTITY)


def _seconds(charge: Charge) -> int:
    """When it counts, in seconds since 1970."""
    return int(charge.counted_at.timestamp())
