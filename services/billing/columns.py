"""The columns of the FOCUS dataset, in the order of its files, and the document that describes them.

Source: FOCUS 1.2, section 2 (columns); of 1.3, the names that replace those of providers and publishers.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from services.billing.exact import Exact
from services.billing.month import Period

FOCUS_VERSION: Final = "1.2"
SCHEMA_ID: Final = "musterbook-focus-1.2-1"  # its last number grows with every change of these columns
SCHEMA_SINCE: Final = "2026-11-30T00:00:00Z"
PRECISION: Final = 38
COST: Final = 24  # places: of a quantity, a price and a rate, multiplied
PRICE: Final = 15  # of a price and a rate
CREDITS: Final = 6
QUANTITY: Final = 9
TAG_PREFIX: Final = "muster/"

Value = str | int | datetime | Exact | None


class Kind(StrEnum):
    """What a column holds, as the metadata of FOCUS call it."""

    STRING = "STRING"
    DECIMAL = "DECIMAL"
    DATE_TIME = "DATETIME"
    JSON = "JSON"
    INTEGER = "INTEGER"


class Column(NamedTuple):
    """A column: its values are of its kind, and null only where it may be."""

    name: str
    kind: Kind = Kind.STRING
    nullable: bool = False
    places: int = 0  # of decimals


def _null(name: str, kind: Kind = Kind.STRING, places: int = 0) -> Column:
    return Column(name, kind, nullable=True, places=places)


COLUMNS: Final = (
    Column("BilledCost", Kind.DECIMAL, places=COST),
    Column("BillingAccountId"),
    Column("BillingAccountName"),
    Column("BillingAccountType"),
    Column("BillingCurrency"),
    Column("BillingPeriodEnd", Kind.DATE_TIME),
    Column("BillingPeriodStart", Kind.DATE_TIME),
    Column("ChargeCategory"),
    _null("ChargeClass"),
    Column("ChargeDescription"),
    Column("ChargeFrequency"),
    Column("ChargePeriodEnd", Kind.DATE_TIME),
    Column("ChargePeriodStart", Kind.DATE_TIME),
    _null("ConsumedQuantity", Kind.DECIMAL, CREDITS),
    _null("ConsumedUnit"),
    Column("ContractedCost", Kind.DECIMAL, places=COST),
    _null("ContractedUnitPrice", Kind.DECIMAL, PRICE),
    Column("EffectiveCost", Kind.DECIMAL, places=COST),
    Column("HostProviderName"),  # 1.3
    _null("InvoiceId"),  # whoever makes invoices knows it
    Column("InvoiceIssuerName"),
    Column("ListCost", Kind.DECIMAL, places=COST),
    _null("ListUnitPrice", Kind.DECIMAL, PRICE),
    _null("PricingCategory"),
    Column("PricingCurrency"),
    _null("PricingCurrencyContractedUnitPrice", Kind.DECIMAL, QUANTITY),
    Column("PricingCurrencyEffectiveCost", Kind.DECIMAL, places=CREDITS),
    _null("PricingCurrencyListUnitPrice", Kind.DECIMAL, QUANTITY),
    _null("PricingQuantity", Kind.DECIMAL, QUANTITY),
    _null("PricingUnit"),
    Column("ProviderName"),
    Column("PublisherName"),
    Column("RegionId"),
    Column("RegionName"),
    Column("ResourceId"),
    _null("ResourceName"),
    Column("ResourceType"),
    Column("ServiceCategory"),
    Column("ServiceName"),
    Column("ServiceProviderName"),  # 1.3
    Column("ServiceSubcategory"),
    _null("SkuId"),
    _null("SkuMeter"),
    _null("SkuPriceDetails", Kind.JSON),
    _null("SkuPriceId"),
    _null("SubAccountId"),
    _null("SubAccountName"),
    _null("SubAccountType"),
    _null("Tags", Kind.JSON),
    Column("x_AmountMicroCredits", Kind.INTEGER),
    _null("x_Cause"),
    Column("x_ChargeId"),
    Column("x_ChargeKind"),
    Column("x_EntryNumber", Kind.INTEGER),
    Column("x_EventId"),
    Column("x_EventPosition", Kind.INTEGER),
    _null("x_GpuMicroseconds", Kind.INTEGER),
    _null("x_JobId"),
    _null("x_PricesPosition", Kind.INTEGER),
    _null("x_Reason"),
    _null("x_RunId"),
)
NAMES: Final = tuple(column.name for column in COLUMNS)


def metadata(period: Period, settings: dict[str, Any]) -> dict[str, Any]:
    """The document beside a dataset: which FOCUS it follows, its columns, the month, and whether that may still change.

    It says nothing of when it was made, so that it is the same as often as the dataset is. Source: FOCUS 1.2, section 5.
    """
    return {
        "DataGenerator": {"DataGenerator": "Musterbook"},
        "Schema": {
            "SchemaId": SCHEMA_ID,
            "FocusVersion": FOCUS_VERSION,
            "CreationDate": SCHEMA_SINCE,
            "ColumnDefinition": [_described(column) for column in COLUMNS],
        },
        "x_Dataset": {
            "BillingPeriod": str(period.month),
            "Closed": period.closed,
            "ThroughPosition": period.through,
            **settings,
        },
    }


def _described(column: Column) -> dict[str, Any]:
    told: dict[str, Any] = {"ColumnName": column.name, "DataType": column.kind.value}
    if column.kind is Kind.DECIMAL:
        told |= {"NumericPrecision": PRECISION, "NumberScale": column.places}
    elif column.kind is Kind.STRING:
        told["StringEncoding"] = "UTF-8"
    elif column.name == "Tags":
        told["ProviderTagPrefixes"] = [TAG_PREFIX]
    return told
