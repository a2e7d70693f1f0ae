"""Events for metering systems."""

from datetime import timedelta

import msgspec

from services.billing.exact import Exact
from services.billing.vendors import lago, stripe
from tests.services.billing.charged import AT, used


def test_lago_is_told_quantity_and_amount_under_the_events_own_id() -> None:
    """The id is what a second try is told by; the time is whole seconds, the same in every try."""
    line = lago(used(5_400_000_000, counted_at=AT + timedelta(microseconds=999_999)), "log-1", Exact(4, 1))
    event = msgspec.json.decode(line)["event"]
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert (event["transaction_id"], event["external_subscription_id"], event["code"]) == (
        "log-1-e-1",
        "vision",
        "gpu_hours",
    )
    assert event["timestamp"] == int(AT.timestamp())
    assert event["precise_total_amount_cents"] == "150"
    assert (event["properties"]["gpu_hours"], event["properties"]["credits"]) == ("1.5", "3.75")


def test_without_a_rate_lago_prices_what_it_is_told() -> None:
    """There is no money then, and none is said."""
    assert "precise_total_amount_cents" not in msgspec.json.decode(lago(used(), "log-1", None))["event"]


def test_stripe_is_told_a_number_as_text_within_its_limits() -> None:
    """An identifier of up to 100 characters, a value as text, seconds since 1970."""
    event = msgspec.json.decode(stripe(used(5_400_000_000), "log-1"))
    assert event == {
        "event_name": "gpu_hours",
        "identifier": "log-1-e-1",
        "timestamp": int(AT.timestamp()),
        "payload": {"stripe_customer_id": "vision", "value": "1.5"},
    }


def test_a_correction_is_negative_and_of_when_it_was_made() -> None:
    """So it lowers what is open now, in either system, and not what was billed."""
    later = AT + timedelta(days=40)
    made = used(-1_800_000_000, corrects=True, counted_at=later)
    told, metered = msgspec.json.decode(lago(made, "log-1", None))["event"], msgspec.json.decode(stripe(made, "log-1"))
    assert (told["properties"]["gpu_hours"], metered["payload"]["value"]) == ("-0.5", "-0.5")
    assert told["timestamp"] == metered["timestamp"] == int(later.timestamp())


def test_events_of_two_logs_are_never_taken_for_each_other() -> None:
    """Ids of events count up in each log alike; a metering system may hear of both."""
    one, other = (msgspec.json.decode(stripe(used(), log_id)) for log_id in ("log-1", "log-2"))
    assert one["identifier"] != other["identifier"]
