"""Laws of whole days on which teams pay for what they run."""

from collections import Counter
from datetime import UTC

from hypothesis import given, settings
from hypothesis import strategies as st

from events.accounts import AccountsSet
from events.base import RunId
from events.credit import CreditCommitted, CreditRefunded, CreditRenewed, CreditReserved, RefundCause, UsageRecorded
from events.job import JobAdmitted, JobPlaced, RunStopping, StopCause
from events.node import GpusReleased
from events.period import PeriodClosed
from projections.cluster.audit.audit import audit
from projections.cluster.snapshot import dump, load
from tests.simulation.paid import DAWN, PaidDay, paid_day

SEEDS = st.integers(0, 2**32)


def finished(seed: int) -> PaidDay:
    """The day, to its end."""
    grown, works = paid_day(seed)
    grown.run(works)
    return grown


@given(SEEDS)
@settings(max_examples=20)
def test_the_auditor_finds_nothing_and_no_account_pays_with_what_it_has_not(seed: int) -> None:
    """Whatever fails, is preempted, cancelled or priced anew; and each reservation is within the overdraft of its moment."""
    grown = finished(seed)

    assert audit(grown.records) == []
    assert grown.overdrawn == []
    assert not grown.cluster.unread


@given(SEEDS)
@settings(max_examples=15)
def test_at_the_end_all_is_settled_and_adds_up(seed: int) -> None:
    """What was reserved is what was committed and given back, of each run; what was granted is what was spent and is left."""
    grown = finished(seed)
    ledger = grown.cluster.credits
    sums: Counter[RunId] = Counter()
    for recorded in grown.records:
        match recorded.event:
            case CreditReserved() | CreditRenewed() as e:
                sums[e.run_id] += e.amount_micro
            case CreditCommitted() | CreditRefunded() as e:
                sums[e.run_id] -= e.amount_micro
            case _:
                pass

    assert not ledger.bills
    assert {run_id: amount for run_id, amount in sums.items() if amount} == {}
    for book in ledger.books.values():
        assert (book.reserved, book.reservations) == (0, 0)
        assert book.balance == book.granted + book.adjusted - book.committed


@given(SEEDS)
@settings(max_examples=5)
def test_usage_records_of_a_closed_month_never_change(seed: int) -> None:
    """Nothing of it is written after it was closed; and it is closed as soon as it may be."""
    grown = finished(seed)
    closed_at = [r.position for r in grown.records if isinstance(r.event, PeriodClosed)]
    late = [
        r.event.usage_id
        for r in grown.records
        if isinstance(r.event, UsageRecorded) and closed_at and r.position > closed_at[0]
        if r.event.at.astimezone(UTC).month == DAWN.month
    ]

    assert late == []
    through = [r.event.closed_through for r in grown.records if isinstance(r.event, AccountsSet)][-1]
    over = grown.records[-1].at > DAWN.replace(month=2, day=1, hour=0, minute=1)
    assert not (through and over) or grown.cluster.credits.month_closed == through


@given(SEEDS)
@settings(max_examples=5)
def test_the_same_day_is_the_same_to_the_byte(seed: int) -> None:
    """Twice the same records and the same fold; and the fold outlives a snapshot."""
    one, other = finished(seed), finished(seed)

    assert one.records == other.records
    saved = load(dump(one.cluster), log_id=one.cluster.log_id)
    assert saved is not None
    assert dump(saved) == dump(one.cluster) == dump(other.cluster)


def test_days_hold_what_the_laws_are_about() -> None:
    """Instalments, credits that run out, waived time, trimming, corrections, hours and months that end."""
    kinds: Counter[str] = Counter()
    for seed in range(25):
        for recorded in finished(seed).records:
            kinds[type(recorded.event).__name__] += 1
            match recorded.event:
                case CreditRefunded(cause=cause):
                    kinds[f"refunded {cause}"] += 1
                case RunStopping(cause=StopCause.CREDITS):
                    kinds["stopped for credits"] += 1
                case UsageRecorded(corrects=True):
                    kinds["corrected"] += 1
                case _:
                    pass

    rare = {"CreditRenewed", "CreditsRunningOut", "stopped for credits", "UsageUncovered", "PeriodClosed", "corrected"}
    asked = {"CreditGranted", "CreditAdjusted", "AskRefused"}
    causes = {f"refunded {cause}" for cause in RefundCause}
    common = {kind.__name__ for kind in (JobAdmitted, JobPlaced, GpusReleased, CreditReserved)}
    assert {kind for kind in rare | asked | causes | common if not kinds[kind]} == set()
