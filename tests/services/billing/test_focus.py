"""Rows of the FOCUS dataset: what costs what, in money and in credits, and what is a correction."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from projections.tables.charges import Charge, ChargeKind
from services.billing.columns import COLUMNS, NAMES
from services.billing.csvfile import CsvFile
from services.billing.exact import Exact
from services.billing.focus import NO_CURRENCY, Sheet, row
from tests.services.billing.charged import AT, HOUR, SHEET, SOLD, entered, used


def shown(charge: Charge, sheet: Sheet = SHEET) -> dict[str, Any]:
    """The row by column, numbers and times as text."""
    values = zip(NAMES, row(charge, sheet), strict=True)
    return {name: str(value) if isinstance(value, Exact) else value for name, value in values}


def test_use_is_paid_in_credits_and_costs_what_these_were_sold_for() -> None:
    """Nothing is billed for use: the credits were. What it cost is what the ledger says, at the operator's rate."""
    found = shown(used(5_400_000_000), SOLD)
    assert (found["ChargeCategory"], found["BilledCost"]) == ("Usage", "0")
    assert (found["PricingCurrency"], found["PricingCurrencyEffectiveCost"]) == ("Credit", "3.75")
    assert (found["BillingCurrency"], found["EffectiveCost"]) == ("USD", "1.5")
    assert (found["PricingQuantity"], found["PricingUnit"]) == ("1.5", "GPU-Hours")
    assert (found["ListUnitPrice"], found["ListCost"]) == ("1", "1.5")
    assert (found["ConsumedQuantity"], found["ConsumedUnit"]) == ("5400", "GPU-Seconds")
    assert (found["SkuId"], found["SkuPriceId"]) == ("h100", "h100@2.5")


def test_without_a_rate_there_is_no_money() -> None:
    """Who gives no rate has no national currency: its costs are 0, and what was used is in credits."""
    found = shown(used())
    assert (found["BillingCurrency"], found["EffectiveCost"], found["ListCost"]) == (NO_CURRENCY, "0", "0")
    assert (found["PricingCurrencyEffectiveCost"], found["PricingCurrencyListUnitPrice"]) == ("2.5", "2.5")


def test_a_grant_is_a_purchase_where_credits_are_sold_and_a_credit_where_not() -> None:
    """The money is billed once, when credits are granted, and effective when they are used."""
    grant = entered(ChargeKind.GRANT, 1_000_000_000)
    sold, given_away = shown(grant, SOLD), shown(grant)
    assert (sold["ChargeCategory"], sold["BilledCost"], sold["EffectiveCost"]) == ("Purchase", "400", "0")
    assert (sold["PricingQuantity"], sold["PricingUnit"], sold["PricingCurrency"]) == ("1000", "Credit", "USD")
    assert (given_away["ChargeCategory"], given_away["BilledCost"]) == ("Credit", "0")
    assert given_away["PricingQuantity"] == "1000"


def test_a_refund_takes_back_what_the_use_cost_and_is_about_its_time() -> None:
    """The use was not billed, so neither is its refund; its month may be over, and then it is a correction."""
    october = datetime(2026, 10, 31, 22, tzinfo=UTC)
    refund = entered(ChargeKind.REFUND, 2_500_000, run_id="j1-1", job_id="j1", team="vision", from_at=october, to_at=AT)
    found = shown(refund, SOLD)
    assert (found["ChargeCategory"], found["ChargeClass"]) == ("Credit", "Correction")
    assert (found["BilledCost"], found["EffectiveCost"]) == ("0", "-1")
    assert found["PricingCurrencyEffectiveCost"] == "-2.5"
    assert (found["ChargePeriodStart"], found["SubAccountId"], found["ResourceId"]) == (october, "vision", "j1-1")


def test_what_an_operator_gives_has_a_quantity_and_no_cost() -> None:
    """Gifts are no sales, and what is taken back of them is no purchase."""
    for micro, quantity in ((5_000_000, "5"), (-500_000, "-0.5")):
        found = shown(entered(ChargeKind.ADJUSTMENT, micro, reason="goodwill"), SOLD)
        assert (found["ChargeCategory"], found["EffectiveCost"], found["PricingQuantity"]) == ("Credit", "0", quantity)
        assert found["x_Reason"] == "goodwill"


def test_a_correction_is_one_of_an_earlier_month_only() -> None:
    """FOCUS: null for a correction within its own billing period; the period is of what is corrected, the month of now."""
    for began, expected in ((AT, None), (datetime(2026, 10, 9, 8, tzinfo=UTC), "Correction")):
        found = shown(used(-3_600_000_000, corrects=True, cause="interrupted", from_at=began, to_at=began + HOUR))
        assert found["ChargeClass"] == expected
        assert (found["ChargePeriodStart"], found["ChargePeriodEnd"]) == (began, began + HOUR)
        assert (found["PricingQuantity"], found["PricingCurrencyEffectiveCost"]) == ("-1", "-2.5")
        assert found["BillingPeriodStart"] == datetime(2026, 11, 1, tzinfo=UTC)


def test_a_charge_period_holds_all_of_its_use() -> None:
    """FOCUS times have whole seconds: what is between two of them lies within."""
    found = shown(used(250_000, from_at=AT + timedelta(microseconds=400), to_at=AT + timedelta(microseconds=250_400)))
    assert (found["ChargePeriodStart"], found["ChargePeriodEnd"]) == (AT, AT + timedelta(seconds=1))


@given(
    st.integers(min_value=-(10**16), max_value=10**16),
    st.integers(min_value=0, max_value=10**15),
    st.integers(min_value=0, max_value=10**8),
)
def test_prices_times_quantities_are_costs_exactly(gpu_us: int, nano: int, rate: int) -> None:
    """FOCUS: the product must match the cost. Every number is a decimal, so it does to the last place."""
    sheet = SOLD._replace(rate=Exact(rate, 6))
    found = dict(zip(NAMES, row(used(gpu_us, nano_per_gpu_hour=nano), sheet), strict=True))
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        left, one, many = found[cost], found[price], found["PricingQuantity"]
        assert isinstance(left, Exact)
        assert isinstance(one, Exact)
        assert isinstance(many, Exact)
        assert left.at(24) == one.times(many).at(24)


@given(st.lists(st.integers(min_value=-(10**16), max_value=10**16)))
def test_the_sum_of_effective_costs_is_the_sum_of_the_ledger(amounts: list[int]) -> None:
    """To the micro-credit, whatever the amounts are: an export never rounds."""
    rows = [dict(zip(NAMES, row(used(amount_micro=micro), SOLD), strict=True)) for micro in amounts]
    total = sum(found.at(6) for values in rows if isinstance(found := values["PricingCurrencyEffectiveCost"], Exact))
    money = sum(found.at(8) for values in rows if isinstance(found := values["EffectiveCost"], Exact))
    assert total == sum(amounts)
    assert money == sum(amounts) * 40


def test_every_row_has_every_column_that_may_not_be_null() -> None:
    """Whatever the charge and the sheet are; and no name is typed that is no column."""
    kinds = [used(), *(entered(kind, 5_000_000, run_id="j1-1") for kind in ChargeKind if kind != ChargeKind.USAGE)]
    for charge in kinds:
        for sheet in (SHEET, SOLD):
            values = row(charge, sheet)
            assert len(values) == len(COLUMNS)
            missing = [
                column.name
                for column, value in zip(COLUMNS, values, strict=True)
                if value is None and not column.nullable
            ]
            assert missing == []


def test_gpus_of_no_named_type_have_a_name_all_the_same() -> None:
    """FOCUS knows no empty text, and every use has a SKU."""
    found = shown(used(gpu_type=""))
    assert (found["SkuId"], found["SkuPriceId"]) == ("gpu", "gpu@2.5")


def test_the_example_of_the_document_is_a_row() -> None:
    """As a CSV has it."""
    text = Path("docs/billing.md").read_text("utf-8")
    told = dict(re.findall(r"(\w+)=(\S+)", text[text.index("    ChargeCategory=") : text.index("### Columns")]))
    charge = used(5_400_000_000, to_at=AT + timedelta(minutes=45))
    file = CsvFile()
    (found,) = csv.DictReader(io.StringIO((file.begin() + file.add([row(charge, SOLD)])).decode(), newline=""))
    assert len(told) > 15
    assert told == {name: found[name] for name in told}
