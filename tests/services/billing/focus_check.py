"""What FOCUS 1.2 asks of a dataset, held to one as it was written: columns, nulls, types, formats, values, and sums.

Source: FOCUS 1.2, sections 2 (attributes) and 3 (columns), as far as our columns go.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Final

from services.billing.columns import COLUMNS, Column, Kind
from services.billing.focus import NO_CURRENCY

Row = dict[str, str]

MANDATORY: Final = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName",
    "ServiceCategory", "ServiceName",
}  # fmt: skip
# Of what a provider can do that we do: prices in a virtual currency, price lists, usage, sub-accounts, resources, tags.
CONDITIONAL: Final = {
    "BillingAccountType", "ConsumedQuantity", "ConsumedUnit", "ContractedUnitPrice", "ListUnitPrice", "PricingCategory",
    "PricingCurrency", "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost",
    "PricingCurrencyListUnitPrice", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType", "SkuId",
    "SkuMeter", "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
}  # fmt: skip
RECOMMENDED: Final = {"ChargeFrequency", "InvoiceId", "ServiceSubcategory"}
MAY_BE_NULL: Final = {
    "ChargeClass", "ChargeDescription", "BillingAccountName", "PricingQuantity", "PricingUnit", "ConsumedQuantity",
    "ConsumedUnit", "ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyListUnitPrice", "ResourceId", "ResourceName", "ResourceType", "SkuId", "SkuMeter",
    "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags", "InvoiceId",
}  # fmt: skip
ALLOWED: Final = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction", ""},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other", ""},
    "ServiceCategory": {"Compute"},
    "ServiceSubcategory": {"Other (Compute)"},  # of that category
}
# Null together, or not at all.
TOGETHER: Final = (
    ("PricingQuantity", "PricingUnit"),
    ("ConsumedQuantity", "ConsumedUnit"),
    ("ResourceId", "ResourceType"),
    ("SubAccountId", "SubAccountName"),
    ("SubAccountId", "SubAccountType"),
    ("SkuId", "SkuMeter"),
)
# Known of every use and purchase that is no correction.
PRICED: Final = (
    "ListUnitPrice", "ContractedUnitPrice", "PricingQuantity", "PricingCategory", "SkuId", "SkuPriceId",
    "PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice",
)  # fmt: skip
NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
TIME: Final = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z")
CURRENCY: Final = re.compile(r"[A-Z]{3}")
NAME: Final = re.compile(r"(x_)?([A-Z][a-z]*)+[A-Za-z]*")
UNIT: Final = re.compile(r"[A-Z][A-Za-z]*(-(Hours|Seconds))?")


def rows_of(data: bytes) -> list[Row]:
    """The rows of a CSV file, by column."""
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def problems(data: bytes) -> list[str]:
    """What is not as FOCUS has it, a sentence each; none is good."""
    header = next(csv.reader(io.StringIO(data.decode(), newline="")))
    if found := list(_columns(header)):
        return found
    rows = rows_of(data)
    with localcontext(prec=100):
        return [*(told for row in rows for told in _of_row(row)), *_parents(rows)]


def _of_row(row: Row) -> Iterator[str]:
    for check in (_values, _nulls, _costs, _periods):
        yield from (f"{row['x_ChargeId']}: {told}" for told in check(row))


def _columns(header: list[str]) -> Iterator[str]:
    ours = {column.name for column in COLUMNS}
    yield from (f"{name} is missing" for name in sorted((MANDATORY | CONDITIONAL | RECOMMENDED | ours) - set(header)))
    yield from (f"{name} comes twice" for name in {name for name in header if header.count(name) > 1})
    yield from (f"{name} is no name of a column" for name in header if not NAME.fullmatch(name) or len(name) > 50)
    customs = [name.startswith("x_") for name in header]
    if customs != sorted(customs):
        yield "columns of our own are not the last"
    for column in COLUMNS:
        if not column.name.startswith("x_") and column.nullable and column.name not in MAY_BE_NULL:
            yield f"{column.name} may be null"


def _values(row: Row) -> Iterator[str]:
    for column in COLUMNS:
        value = row[column.name]
        if value and not _fits(column, value):
            yield f"{column.name}: {value!r} is no {column.kind.value}"
        if value != value.strip() or (not value and not column.nullable):
            yield f"{column.name}: {value!r} is empty"
    yield from (
        f"{name}: {row[name]!r} is not allowed" for name, allowed in ALLOWED.items() if row[name] not in allowed
    )
    if not CURRENCY.fullmatch(row["BillingCurrency"]):
        yield "BillingCurrency is no national currency"
    yield from (
        f"{name}: {row[name]!r} is no unit"
        for name in ("PricingUnit", "ConsumedUnit")
        if row[name] and not UNIT.fullmatch(row[name])
    )


def _fits(column: Column, value: str) -> bool:
    match column.kind:
        case Kind.DECIMAL:
            return bool(NUMBER.fullmatch(value))
        case Kind.INTEGER:
            return bool(NUMBER.fullmatch(value)) and "." not in value
        case Kind.DATE_TIME:
            return bool(TIME.fullmatch(value))
        case Kind.JSON:
            pairs = json.loads(value, object_pairs_hook=list)
            names = [name for name, _ in pairs]
            return len(names) == len(set(names)) and not any(isinstance(held, list | dict) for _, held in pairs)
        case Kind.STRING:
            return True


def _nulls(row: Row) -> Iterator[str]:
    category, corrects = row["ChargeCategory"], row["ChargeClass"] == "Correction"
    yield from (
        f"{one} without {other}, or the reverse" for one, other in TOGETHER if bool(row[one]) != bool(row[other])
    )
    if category in {"Usage", "Purchase"} and not corrects:
        yield from (f"{name} is null in a {category}" for name in PRICED if not row[name])
    if category == "Usage" and not corrects and not row["ConsumedQuantity"]:
        yield "ConsumedQuantity is null in a Usage"
    if category != "Usage" and row["ConsumedQuantity"]:
        yield f"ConsumedQuantity is not null in a {category}"
    if category == "Purchase" and row["ChargeFrequency"] == "Usage-Based":
        yield "a Purchase is Usage-Based"
    if row["SkuPriceDetails"] and not row["SkuPriceId"]:
        yield "SkuPriceDetails without SkuPriceId"
    if row["ResourceName"] and row["ResourceName"] == row["ResourceId"]:
        yield "ResourceName repeats ResourceId"


def _costs(row: Row) -> Iterator[str]:
    def number(name: str) -> Decimal:
        return Decimal(row[name] or "0")

    corrects, category = row["ChargeClass"] == "Correction", row["ChargeCategory"]
    for name in ("ListUnitPrice", "ContractedUnitPrice"):
        if number(name) < 0 or number(f"PricingCurrency{name}") < 0:
            yield f"{name} is negative"
        cost = name.removesuffix("UnitPrice") + "Cost"
        held = row[name] and row["PricingQuantity"] and not corrects
        if held and number(name) * number("PricingQuantity") != number(cost):
            yield f"{name} times PricingQuantity is not {cost}"
    if category == "Purchase" and (number("EffectiveCost") or number("PricingCurrencyEffectiveCost")):
        yield "a Purchase of what is used later has an effective cost"
    if row["BillingCurrency"] == NO_CURRENCY and any(map(number, ("BilledCost", "EffectiveCost", "ListCost"))):
        yield "costs without a currency"


def _periods(row: Row) -> Iterator[str]:
    start, end = row["ChargePeriodStart"], row["ChargePeriodEnd"]
    first, last = row["BillingPeriodStart"], row["BillingPeriodEnd"]
    if not start < end:
        yield "the charge period has no length"
    if not first < last or not first.endswith("-01T00:00:00Z") or not last.endswith("-01T00:00:00Z"):
        yield "the billing period is no month"
    if row["ChargeClass"] == "Correction":
        if not start < first:
            yield "a Correction is of its own billing period"
    elif not first <= start < end <= last:
        yield "the charge period is not within the billing period"


def _parents(rows: list[Row]) -> Iterator[str]:
    """A price has one SKU and one unit price; use has one row."""
    known: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if price := row["SkuPriceId"]:
            said = tuple(row[name] for name in ("SkuId", "SkuMeter", "PricingCurrencyListUnitPrice", "ListUnitPrice"))
            if known.setdefault(price, said) != said:
                yield f"SkuPriceId {price} is two prices"
    ids = [row["x_ChargeId"] for row in rows]
    yield from (f"{one} comes twice" for one in {one for one in ids if ids.count(one) > 1})
