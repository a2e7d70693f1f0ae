"""CSV files of FOCUS, held to what FOCUS asks of them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from events.base import AccountId, TeamId
from projections.tables.charges import Charge, ChargeKind
from services.billing.columns import NAMES
from services.billing.csvfile import CsvFile
from services.billing.focus import Sheet, row
from tests.services.billing.charged import AT, HOUR, SHEET, SOLD, entered, used
from tests.services.billing.focus_check import problems, rows_of

OCTOBER = datetime(2026, 10, 31, 22, tzinfo=UTC)


def written(charges: list[Charge], sheet: Sheet) -> bytes:
    """The file."""
    file = CsvFile()
    return file.begin() + file.add(row(charge, sheet) for charge in charges) + file.end()


@dataclass
class Draw:
    """Charges of every kind, each with an id of its own."""

    counted: int = 0

    def one(self, kind: ChargeKind, seconds: int, micro: int, late: bool) -> Charge:
        """A charge of this kind, of this month or about the one before."""
        self.counted += 1
        began = OCTOBER if late else AT
        about = {"from_at": began, "to_at": began + timedelta(milliseconds=seconds % 3_600_000 + 1)}
        if kind == ChargeKind.USAGE:
            of = {"id": f"j{self.counted}-1-1", "team": TeamId("a"), "corrects": late or seconds < 0}
            return used(seconds * 1_000, **about, **of)
        run = f"j{self.counted}-1" if kind == ChargeKind.REFUND else None
        more = about if kind == ChargeKind.REFUND else {}
        return entered(kind, micro, entry=self.counted, account=AccountId("b"), run_id=run, job_id=run, **more)


CHARGES = st.lists(
    st.tuples(
        st.sampled_from(list(ChargeKind)),
        st.integers(min_value=-(10**9), max_value=10**9),
        st.integers(min_value=1, max_value=10**15),
        st.booleans(),
    ),
    max_size=20,
)


@given(CHARGES, st.sampled_from([SHEET, SOLD]))
def test_every_file_is_as_focus_has_it(drawn: list[tuple[ChargeKind, int, int, bool]], sheet: Sheet) -> None:
    """Columns, nulls, types, formats, values, products and periods, whatever is charged."""
    draw = Draw()
    charges = [draw.one(*one) for one in drawn]
    data = written(charges, sheet)
    assert problems(data) == []
    assert len(rows_of(data)) == len(charges)


def test_the_check_finds_what_is_wrong() -> None:
    """Of each kind of rule one that is broken is seen: a check that never fails proves nothing."""
    good = written([used(), entered(ChargeKind.GRANT, 10**9)], SOLD).decode()
    for before, after, told in (
        (",Usage,", ",Usages,", "ChargeCategory: 'Usages' is not allowed"),
        ("2026-11-07T09:00:00Z", "2026-11-07 09:00:00", "ChargePeriodStart"),
        ("2026-11-07T09:00:00Z", "2026-10-07T09:00:00Z", "not within the billing period"),
        (",USD,", ",Dollars,", "BillingCurrency is no national currency"),
        ("BilledCost,", "BilledCosts,", "BilledCost is missing"),
        (",GPU-Hours,", ",,", "PricingQuantity without PricingUnit"),
        (",h100@2.5,", ",,", "SkuPriceId is null in a Usage"),
        (",1.0,1.0,", ",1.0,1.5,", "times PricingQuantity is not"),
    ):
        found = problems(good.replace(before, after, 1).encode())
        assert any(told in one for one in found), (told, found)


def test_a_file_of_nothing_has_the_names_of_its_columns() -> None:
    """A month without charges is a dataset too."""
    assert written([], SHEET) == (",".join(NAMES) + "\r\n").encode()


def test_text_of_people_stays_in_its_field() -> None:
    """Whatever an operator gave as a reason: quotes, commas, lines, letters of any alphabet."""
    reason = 'é "x", y\nz'
    data = written([entered(ChargeKind.ADJUSTMENT, 5, reason=reason)], SHEET)
    assert rows_of(data)[0]["x_Reason"] == reason


def test_decimals_have_a_point_and_no_more_than_they_need() -> None:
    """Whole numbers too: a reader that guesses types must not take a column of zeros for one of integers."""
    found = rows_of(written([used(5_400_000_000, to_at=AT + HOUR)], SOLD))[0]
    assert (found["BilledCost"], found["PricingQuantity"], found["ConsumedQuantity"]) == ("0.0", "1.5", "5400.0")
    assert Decimal(found["EffectiveCost"]) == Decimal("1.5")
