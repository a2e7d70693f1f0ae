"""The formats of exports: what each is called, and the file that charges become, piece by piece."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from projections.tables.charges import Charge, ChargeKind
from services.billing.columns import Value, metadata
from services.billing.csvfile import CsvFile
from services.billing.focus import Sheet, row
from services.billing.month import Period
from services.billing.parquet import ParquetFile
from services.billing.vendors import lago, stripe


class Format(StrEnum):
    """What an export may be."""

    FOCUS_CSV = "focus-csv"
    FOCUS_PARQUET = "focus-parquet"
    FOCUS_METADATA = "focus-metadata"  # the document beside either
    LAGO = "lago"
    STRIPE = "stripe"
    OPENMETER = "openmeter"


class Kind(NamedTuple):
    """What a file of a format is to those who take it."""

    media_type: str
    ending: str
    money: bool  # it says what credits cost in a currency, if that is given


KINDS: Final = {
    Format.FOCUS_CSV: Kind("text/csv; charset=utf-8; header=present", "focus.csv", money=True),
    Format.FOCUS_PARQUET: Kind("application/vnd.apache.parquet", "focus.parquet", money=True),
    Format.FOCUS_METADATA: Kind("application/json", "focus.json", money=True),
    Format.LAGO: Kind("application/x-ndjson", "lago.ndjson", money=True),
    Format.STRIPE: Kind("application/x-ndjson", "stripe.ndjson", money=False),
    Format.OPENMETER: Kind("application/x-ndjson", "openmeter.ndjson", money=False),
}
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class File(Protocol):
    """A file that is made of charges. The same charges give the same bytes, however many come at once."""

    def begin(self) -> bytes:
        """Its first bytes."""
        ...

    def add(self, charges: Sequence[Charge]) -> bytes:
        """The bytes of these charges, and of those before that were held back."""
        ...

    def end(self) -> bytes:
        """Its last bytes."""
        ...


def file_of(made: Format, period: Period, sheet: Sheet, chosen: dict[str, str | None]) -> File:
    """The file of a format. `chosen`: which charges are in it, as its metadata say; OpenMeter's is made of stored events."""
    match made:
        case Format.FOCUS_CSV:
            return _Dataset(CsvFile(), sheet)
        case Format.FOCUS_PARQUET:
            told = _encode(described(period, sheet, chosen)).decode()
            return _Dataset(ParquetFile({"focus_metadata": told}), sheet)
        case Format.LAGO:
            return _Events(lambda charge: lago(charge, sheet.log_id, sheet.rate if sheet.currency else None))
        case Format.STRIPE:
            return _Events(lambda charge: stripe(charge, sheet.log_id))
        case Format.FOCUS_METADATA | Format.OPENMETER:
            raise AssertionError(f"{made} is not made of charges")


def document(period: Period, sheet: Sheet, chosen: dict[str, str | None]) -> bytes:
    """The document beside a dataset, as a file."""
    return msgspec.json.format(_encode(described(period, sheet, chosen)), indent=2) + b"\n"


def described(period: Period, sheet: Sheet, chosen: dict[str, str | None]) -> dict[str, Any]:
    """What is beside a dataset."""
    settings = {
        "Provider": sheet.provider,
        "Region": sheet.region,
        "Log": sheet.log_id,
        "Currency": sheet.currency or None,
        "RatePerCredit": str(sheet.rate) if sheet.currency else None,
        **chosen,
    }
    return metadata(period, settings)


def used(charges: Sequence[Charge]) -> list[Charge]:
    """Those that metering systems are told of: records of use, and corrections of these."""
    return [charge for charge in charges if charge.kind == ChargeKind.USAGE]


class _Rows(Protocol):
    """A file that is made of rows."""

    def begin(self) -> bytes: ...

    def add(self, rows: Sequence[tuple[Value, ...]]) -> bytes: ...

    def end(self) -> bytes: ...


class _Dataset:
    """A FOCUS dataset: every charge is a row."""

    def __init__(self, rows: _Rows, sheet: Sheet) -> None:
        self._rows = rows
        self._sheet = sheet

    def begin(self) -> bytes:
        return self._rows.begin()

    def add(self, charges: Sequence[Charge]) -> bytes:
        return self._rows.add([row(charge, self._sheet) for charge in charges])

    def end(self) -> bytes:
        return self._rows.end()


class _Events:
    """Lines of events: every record of use is one."""

    def __init__(self, line: Callable[[Charge], bytes]) -> None:
        self._line = line

    def begin(self) -> bytes:
        return b""

    def add(self, charges: Sequence[Charge]) -> bytes:
        return b"".join(map(self._line, used(charges)))

    def end(self) -> bytes:
        return b""
