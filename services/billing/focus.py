"""Charges as rows of the FOCUS dataset: every number from the ledger's own, exactly.

Use is charged in credits, a virtual currency; credits are bought, at the operator's rate, or given. So the money is
billed when credits are granted, and use has a cost and no bill. Source: FOCUS 1.2, virtual currency pricing model.
"""

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from projections.cluster.credit.price import HOUR_US, half_even
from projections.tables.charges import Charge, ChargeKind
from services.billing.columns import CREDITS, NAMES, QUANTITY, TAG_PREFIX, Value
from services.billing.exact import ZERO, Exact
from services.billing.month import Month

NO_CURRENCY: Final = "X" * 3  # ISO 4217: no currency is involved
CREDIT: Final = "Credit"  # the virtual currency, and the unit that it is bought in
UNNAMED: Final = "gpu"  # a type without a name: FOCUS knows no empty text
NANO: Final = 9  # places of a price
SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Sheet(NamedTuple):
    """What all rows of an export have in common."""

    month: Month
    provider: str
    region: str
    log_id: str
    currency: str = ""  # ISO 4217; empty: credits have no price in money
    rate: Exact = ZERO  # what a credit costs in it


def row(charge: Charge, sheet: Sheet) -> tuple[Value, ...]:
    """The charge in the order of the columns."""
    match ChargeKind(charge.kind):
        case ChargeKind.USAGE:
            values = _usage(charge, sheet)
        case ChargeKind.GRANT if sheet.currency:
            values = _purchase(charge, sheet)
        case ChargeKind.REFUND:
            values = _refund(charge, sheet)
        case _:  # a grant that nobody pays for, or an adjustment
            values = _given(charge)
    values |= _common(charge, sheet)
    return tuple(map(values.get, NAMES))


def _common(charge: Charge, sheet: Sheet) -> dict[str, Value]:
    start, end = charge_period(charge)
    usage = charge.kind == ChargeKind.USAGE
    known = charge.id if usage else f"{charge.account}-{charge.entry}"
    return {
        "BillingAccountId": charge.account,
        "BillingAccountName": charge.account,
        "BillingAccountType": "Account",
        "BillingCurrency": sheet.currency or NO_CURRENCY,
        "BillingPeriodStart": sheet.month.start,
        "BillingPeriodEnd": sheet.month.end,
        "ChargeClass": "Correction" if start < sheet.month.start else None,
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        "HostProviderName": sheet.provider,
        "InvoiceIssuerName": sheet.provider,
        "ProviderName": sheet.provider,
        "PublisherName": sheet.provider,
        "ServiceProviderName": sheet.provider,
        "RegionId": sheet.region,
        "RegionName": sheet.region,
        "ServiceCategory": "Compute",
        "ServiceSubcategory": "Other (Compute)",
        "ServiceName": "GPU time",
        "SubAccountId": charge.team or None,
        "SubAccountName": charge.team or None,
        "SubAccountType": "Team" if charge.team else None,
        "ResourceId": charge.run_id or known,
        "ResourceType": "Run" if charge.run_id else "Credits",
        "Tags": _tags(charge),
        "x_AmountMicroCredits": charge.amount_micro,
        "x_Cause": charge.cause or None,
        "x_ChargeId": known,
        "x_ChargeKind": ChargeKind(charge.kind).value,
        "x_EntryNumber": charge.entry,
        "x_EventId": charge.event_id,
        "x_EventPosition": charge.position,
        "x_GpuMicroseconds": charge.gpu_us if usage else None,
        "x_JobId": charge.job_id,
        "x_PricesPosition": charge.prices if usage else None,
        "x_Reason": charge.reason or None,
        "x_RunId": charge.run_id,
    }


def charge_period(charge: Charge) -> tuple[datetime, datetime]:
    """The whole seconds that the charge is about; of what is no use of anything, the day.

    A correction and a refund are about what they take back, in whichever month that was.
    """
    if charge.kind in {ChargeKind.USAGE, ChargeKind.REFUND}:
        start, whole = charge.from_at.replace(microsecond=0), charge.to_at.replace(microsecond=0)
        return start, max(whole if whole == charge.to_at else whole + SECOND, start + SECOND)
    day = charge.at.replace(hour=0, minute=0, second=0, microsecond=0)
    return day, day + DAY


def _usage(charge: Charge, sheet: Sheet) -> dict[str, Value]:
    """Use: quantity times price is its cost at the list, what the ledger charges is its effective cost.

    The two differ by the ledger's rounding, below a micro-credit a record, and where a run used more than was reserved
    and its provider bears that.
    """
    price = Exact(charge.nano_per_gpu_hour, NANO)
    quantity = Exact(half_even(charge.gpu_us * 10**QUANTITY, HOUR_US), QUANTITY)
    amount = Exact(charge.amount_micro, CREDITS)
    listed = quantity.times(price).times(sheet.rate)
    gpu_type = charge.gpu_type or UNNAMED
    what = f"{'Correction of' if charge.corrects else 'Use of'} {gpu_type} GPUs by run {charge.run_id}"
    return {
        "BilledCost": ZERO,  # paid in credits
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{what}: {charge.cause}" if charge.cause else what,
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": Exact(charge.gpu_us, CREDITS),
        "ConsumedUnit": "GPU-Seconds",
        "ContractedCost": listed,
        "ContractedUnitPrice": price.times(sheet.rate),
        "EffectiveCost": amount.times(sheet.rate),
        "ListCost": listed,
        "ListUnitPrice": price.times(sheet.rate),
        "PricingCategory": "Standard",
        "PricingCurrency": CREDIT,
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyEffectiveCost": amount,
        "PricingCurrencyListUnitPrice": price,
        "PricingQuantity": quantity,
        "PricingUnit": "GPU-Hours",
        "SkuId": gpu_type,
        "SkuMeter": "GPU time",
        "SkuPriceDetails": _json({"GpuCount": 1, "x_GpuType": gpu_type}),
        "SkuPriceId": f"{gpu_type}@{price}",
    }


def _purchase(charge: Charge, sheet: Sheet) -> dict[str, Value]:
    """Credits that are sold: billed now, and effective when they are used."""
    amount = Exact(charge.amount_micro, CREDITS)
    cost = amount.times(sheet.rate)
    return {
        "BilledCost": cost,
        "ChargeCategory": "Purchase",
        "ChargeDescription": "Credits granted",
        "ChargeFrequency": "One-Time",
        "ContractedCost": cost,
        "ContractedUnitPrice": sheet.rate,
        "EffectiveCost": ZERO,
        "ListCost": cost,
        "ListUnitPrice": sheet.rate,
        "PricingCategory": "Standard",
        "PricingCurrency": sheet.currency,
        "PricingCurrencyContractedUnitPrice": sheet.rate,
        "PricingCurrencyEffectiveCost": ZERO,
        "PricingCurrencyListUnitPrice": sheet.rate,
        "PricingQuantity": amount,
        "PricingUnit": CREDIT,
        "SkuId": "credits",
        "SkuMeter": "Credits",
        "SkuPriceId": f"credits@{sheet.rate} {sheet.currency}",
    }


def _given(charge: Charge) -> dict[str, Value]:
    """Credits that are given, or taken back, for no money."""
    return {
        "BilledCost": ZERO,
        "ChargeCategory": "Credit",
        "ChargeDescription": "Credits granted"
        if charge.kind == ChargeKind.GRANT
        else "Balance corrected by an operator",
        "ChargeFrequency": "One-Time",
        "ContractedCost": ZERO,
        "EffectiveCost": ZERO,
        "ListCost": ZERO,
        "PricingCurrency": CREDIT,
        "PricingCurrencyEffectiveCost": ZERO,
        "PricingQuantity": Exact(charge.amount_micro, CREDITS),
        "PricingUnit": CREDIT,
    }


def _refund(charge: Charge, sheet: Sheet) -> dict[str, Value]:
    """What use cost, given back after the fact: a credit worked out from the cost of that use, which was not billed either."""
    amount = -Exact(charge.amount_micro, CREDITS)
    cost = amount.times(sheet.rate)
    return {
        "BilledCost": ZERO,
        "ChargeCategory": "Credit",
        "ChargeDescription": f"Refund of run {charge.run_id}",
        "ChargeFrequency": "One-Time",
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        "PricingCurrency": CREDIT,
        "PricingCurrencyEffectiveCost": amount,
    }


def _tags(charge: Charge) -> str:
    tags = {"account": charge.account, "job": charge.job_id, "team": charge.team}
    return _json({f"{TAG_PREFIX}{name}": value for name, value in tags.items() if value})


def _json(value: dict[str, Any]) -> str:
    return _encode(value).decode()
