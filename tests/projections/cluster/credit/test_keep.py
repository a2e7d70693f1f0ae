"""Bills stand in the indexes where they belong, and in no other, through all their life; and so in a fork."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from events.base import AccountId, RunId
from events.credit import EndedAs
from projections.cluster.credit.book import Bill, End
from projections.cluster.credit.keep import drop_bill, end_bill, hour_key, put_bill, put_debt, stop_key
from projections.cluster.credit.meter import next_hour
from projections.cluster.credit.state import Entry
from projections.cluster.state import Cluster
from tests.purses import CREDIT, A, a_bill

BEGIN = datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
END = End(outcome=EndedAs.SUCCEEDED, ended=BEGIN)
CHANGES: tuple[dict[str, Any], ...] = (
    {"gpu_type": "h100"},
    {"gpus": 1},
    {"reserved_micro": 0},
    {"reserved_micro": 100 * CREDIT},
    {"counts_from": BEGIN},
    {"renews": True, "grace_s": 40},
    {"covers_s": 9_000},
    {"recorded_until": next_hour(BEGIN)},
    {"running_out": BEGIN},
    {"end": END},
)


def indexes(cluster: Cluster) -> dict[str, object]:
    """What the indexes say."""
    ours = cluster.credits
    return {
        "settling": sorted(ours.settling),
        "trimming": sorted(ours.trimming),
        "quoted": {group: list(ours.quoted.line(group)) for group in ours.quoted.groups()},
        "covered": {group: list(ours.covered.line(group)) for group in ours.covered.groups()},
        "hours": list(ours.hours.line(None)),
    }


def anew(bills: list[Bill]) -> dict[str, object]:
    """What they say where these bills are all that ever was."""
    cluster = Cluster()
    for bill in bills:
        put_bill(cluster, bill)
    return indexes(cluster)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, len(CHANGES)), st.booleans()), max_size=25))
def test_indexes_say_what_the_bills_say(steps: list[tuple[str, int, bool]]) -> None:
    """However these came about, in forks and forks of forks."""
    cluster = Cluster()
    for number, (name, change, fork) in enumerate(steps):
        cluster = cluster.fork() if fork else cluster
        before = cluster.credits.bills.get(RunId(f"{name}-1"))
        if change == len(CHANGES) and before is not None:
            drop_bill(cluster, before.run_id)
        elif before is None:
            put_bill(cluster, a_bill(name, age=number + 1))
        else:
            put_bill(cluster, replace(before, **CHANGES[change % len(CHANGES)]))

    assert indexes(cluster) == anew(list(cluster.credits.bills.values()))


def test_a_bill_is_trimmed_once_it_is_placed_on_less() -> None:
    """Not before: it may still get all."""
    cluster = Cluster()
    put_bill(cluster, a_bill(gpus=2, reserved_micro=8 * CREDIT))
    assert not cluster.credits.trimming
    put_bill(cluster, a_bill(gpus=2, reserved_micro=8 * CREDIT, gpu_type="h100"))
    assert list(cluster.credits.trimming) == ["job-1"]
    put_bill(cluster, a_bill(gpus=2, reserved_micro=2 * CREDIT, gpu_type="h100"))
    assert not cluster.credits.trimming


def test_a_run_is_told_to_stop_so_that_its_grace_is_covered() -> None:
    """One that ends by itself is not."""
    placed = a_bill(gpu_type="h100", covers_s=3_600, counts_from=BEGIN, grace_s=40)
    key = stop_key(replace(placed, renews=True))

    assert key is not None
    assert key[0] == (BEGIN + timedelta(seconds=3_560)).timestamp()
    assert stop_key(placed) is None
    assert stop_key(replace(placed, renews=True, counts_from=None)) is None


def test_hours_are_recorded_one_after_the_other() -> None:
    """From when it counts."""
    placed = a_bill(gpu_type="h100", counts_from=BEGIN)
    first, second = hour_key(placed), hour_key(replace(placed, recorded_until=next_hour(BEGIN)))

    assert first is not None
    assert second is not None
    assert first[0] == datetime(2026, 1, 1, 11, tzinfo=UTC).timestamp()
    assert second[0] - first[0] == 3_600
    assert hour_key(a_bill()) is None


def test_two_attempts_of_a_job_in_one_round_are_two() -> None:
    """In a fork where the first leaves its place and the second takes one of the same time and age."""
    cluster = Cluster()
    put_bill(cluster, a_bill(counts_from=BEGIN, gpu_type="h100"))
    fork = cluster.fork()
    end_bill(fork, RunId("job-1"), END)
    put_bill(fork, replace(a_bill(counts_from=BEGIN, gpu_type="h100"), run_id=RunId("job-2")))

    assert [run_id for _, run_id in fork.credits.hours.line(None)] == ["job-2"]


def test_the_end_of_a_run_that_nobody_pays_for_changes_nothing() -> None:
    """It has no bill."""
    cluster = Cluster()
    end_bill(cluster, RunId("job-1"), END)

    assert not cluster.credits.bills


def test_debts_are_found_by_account_until_they_are_paid() -> None:
    """In a fork too, which changes nothing below it."""
    cluster = Cluster()
    for of in (Entry(A, 2), Entry(A, 1), Entry(AccountId("b"), 1)):
        put_debt(cluster, of, 3)
    fork = cluster.fork()
    put_debt(fork, Entry(A, 1), 1)
    put_debt(fork, Entry(AccountId("b"), 1), 0)

    assert [of for _, of in fork.credits.owing.line(A)] == [Entry(A, 1), Entry(A, 2)]
    assert (fork.credits.owing.groups(), sum(fork.credits.debts.values())) == ([A], 4)
    assert (sorted(cluster.credits.owing.groups()), sum(cluster.credits.debts.values())) == ([A, "b"], 9)
