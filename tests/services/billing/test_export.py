"""Formats of exports: the same bytes however charges come, and a document that says what they are."""

import hashlib
import io
import json

import pytest
from arro3.io import read_parquet
from hypothesis import given
from hypothesis import strategies as st

from events.base import Position
from projections.tables.charges import Charge, ChargeKind
from services.billing.columns import COLUMNS, NAMES
from services.billing.export import KINDS, Format, document, file_of, used
from services.billing.focus import Sheet
from services.billing.month import Period
from tests.services.billing import charged
from tests.services.billing.charged import NOVEMBER, SHEET, SOLD, entered
from tests.services.billing.focus_check import MANDATORY

CLOSED = Period(NOVEMBER, Position(700), closed=True)
ALL: dict[str, str | None] = {"Account": None, "Team": None}
MADE = [made for made in Format if made not in {Format.FOCUS_METADATA, Format.OPENMETER}]


PINNED = {  # of fifty charges
    Format.FOCUS_CSV: "96fdbe354c73d285cd7097a006b992f959e3072b15830ddfae1e70fcd111a168",
    Format.FOCUS_PARQUET: "24cc0c459a2d46dde2429bcf305daddbce9c2cd503bb104855a1372fb5751fab",
    Format.LAGO: "9b52b6cb831d165dbdcf9999e9e6fcc622e13a0fcf674968c99e9b6e05763c79",
    Format.STRIPE: "338f1dad9eeeaf51cc4705e68a65ea7c4b3e08a7420af6c0afc5154d571c8aae",
}


def many(number: int) -> list[Charge]:
    """So many charges: of use, and each third a grant."""
    return [
        entered(ChargeKind.GRANT, one + 1, entry=one) if one % 3 == 2 else charged.used(id=f"j{one}-1-1", event_id=f"e{one}")
        for one in range(number)
    ]  # fmt: skip


def written(made: Format, charges: list[Charge], step: int, sheet: Sheet = SOLD) -> bytes:
    """The file, of so many charges at a time."""
    file = file_of(made, CLOSED, sheet, ALL)
    added = [file.add(charges[first : first + step]) for first in range(0, len(charges), step)]
    return b"".join([file.begin(), *added, file.end()])


@given(st.sampled_from(MADE), st.integers(min_value=0, max_value=40), st.integers(min_value=1, max_value=50))
def test_pages_leave_no_trace(made: Format, number: int, step: int) -> None:
    """A file does not show how it was read."""
    charges = many(number)
    assert written(made, charges, step) == written(made, charges, number + 1)


def test_metering_systems_are_told_of_use_alone() -> None:
    """A grant is no event of theirs: a line for each record of use, and none else."""
    charges = many(9)
    assert len(used(charges)) == 6
    for made in (Format.LAGO, Format.STRIPE):
        assert len(written(made, charges, 4).splitlines()) == 6
    assert len(written(Format.FOCUS_CSV, charges, 4).splitlines()) == 1 + 9


def test_lago_is_told_money_where_credits_have_a_price() -> None:
    """And none where not."""
    assert b"precise_total_amount_cents" in written(Format.LAGO, many(1), 1)
    assert b"precise_total_amount_cents" not in written(Format.LAGO, many(1), 1, SHEET)


def test_the_document_says_version_columns_and_month() -> None:
    """What is needed to read the dataset, and to tell whether it may change; and never when it was made."""
    told = json.loads(document(CLOSED, SOLD, ALL))
    assert told["Schema"]["FocusVersion"] == "1.2"
    assert [column["ColumnName"] for column in told["Schema"]["ColumnDefinition"]] == list(NAMES)
    assert told["Schema"]["ColumnDefinition"][0] == {
        "ColumnName": "BilledCost", "DataType": "DECIMAL", "NumericPrecision": 38, "NumberScale": 24,
    }  # fmt: skip
    assert {"ColumnName": "Tags", "DataType": "JSON", "ProviderTagPrefixes": ["muster/"]} in told["Schema"][
        "ColumnDefinition"
    ]
    assert told["x_Dataset"]["Closed"] is True
    assert (told["x_Dataset"]["ThroughPosition"], told["x_Dataset"]["RatePerCredit"]) == (700, "0.4")
    assert document(CLOSED, SOLD, ALL) == document(CLOSED, SOLD, ALL)
    assert document(CLOSED, SHEET, ALL) != document(CLOSED, SOLD, ALL)
    assert {column.name for column in COLUMNS} >= MANDATORY


def test_a_parquet_file_brings_its_document_along() -> None:
    """It is found again when the file is far from here."""
    data = written(Format.FOCUS_PARQUET, many(3), 1)
    assert json.dumps(json.loads(document(CLOSED, SOLD, ALL)), sort_keys=True, separators=(",", ":")).encode() in data
    assert read_parquet(io.BytesIO(data)).read_all().num_rows == 3


def test_every_format_has_a_name_for_its_files() -> None:
    """No two the same."""
    assert len({kind.ending for kind in KINDS.values()}) == len(Format) == len(KINDS)


@pytest.mark.parametrize("made", [Format.FOCUS_METADATA, Format.OPENMETER])
def test_what_is_not_made_of_charges_is_no_file(made: Format) -> None:
    """Whoever asks has mistaken it."""
    with pytest.raises(AssertionError):
        file_of(made, CLOSED, SOLD, ALL)


@pytest.mark.parametrize("made", MADE)
def test_bytes_of_earlier_versions_are_those_of_this_one(made: Format) -> None:
    """Months that were exported years ago are asked for again. Bytes that must change come with a new `SCHEMA_ID`."""
    assert hashlib.sha256(written(made, many(50), 7)).hexdigest() == PINNED[made]
