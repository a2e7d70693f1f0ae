"""Laws of the tables of credits: nothing is lost between accounts, entries and bills, in whatever stretches it came."""

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events.credit import AdjustCause, CreditAdjusted, UsageUncovered
from events.policy import Bearer
from projections.tables import schema
from projections.tables.credit_entry import SIGNS
from projections.tables.verify import KEYS
from runtime.postgres import Pool
from tests.projections.tables.paid import paying
from tests.projections.tables.written import cut, eventful, fill, lived, recorded, table

LAW = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@LAW
@given(seed=st.integers(0, 1_000_000), places=st.lists(st.integers(0, 10_000), max_size=8))
async def test_balances_are_what_entries_add_up_to(pool: Pool, seed: int, places: list[int]) -> None:
    """Each balance follows from the one before and its entry, the last is the account's, and that is what was given."""
    happened = paying(seed, 60)
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, cut(recorded(happened.events), places))
        rows = {name: await table(conn, name) for name in KEYS}

    accounts = {row["account"]: row for row in rows["account_view"]}
    for name, balance in happened.balances.items():
        entries = sorted((row for row in rows["credit_entry"] if row["account"] == name), key=lambda row: row["entry"])
        assert [row["entry"] for row in entries] == list(range(1, happened.purses[name].entry + 1))
        changes = [SIGNS.get(row["kind"], 0) * row["amount_micro"] for row in entries]
        balances = [0, *(row["balance_micro"] for row in entries)]
        assert [after - before for before, after in pairwise(balances)] == changes
        assert balances[-1] == balance
        if name in accounts:
            assert (accounts[name]["balance_micro"], accounts[name]["entry"]) == (balance, len(entries))
    assert {row["usage_id"] for row in rows["usage_record"]} == {
        event.usage_id for event in happened.events if hasattr(event, "usage_id")
    }


@LAW
@given(seed=st.integers(0, 1_000_000))
async def test_what_is_reserved_is_committed_or_given_back(pool: Pool, seed: int) -> None:
    """Of each bill, to the unit; and what is left of those that are not settled is what their accounts have reserved."""
    happened = paying(seed, 60)
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, cut(recorded(happened.events), range(0, 999, 7)))
        rows = {name: await table(conn, name) for name in KEYS}

    left, number, debts = Counter[str](), Counter[str](), Counter[str]()
    for bill in rows["bill_view"]:
        rest = bill["reserved_micro"] - bill["committed_micro"] - bill["refunded_micro"]
        assert (bill["state"] == "reserved") is (bill["run_id"] in happened.reserved)
        assert (bill["outcome"] is None, bill["settled_at"] is None) == (bill["state"] == "reserved",) * 2
        if bill["state"] == "settled":
            assert rest == 0
        left[bill["account"]] += rest
        number[bill["account"]] += bill["state"] == "reserved"
    for event in happened.events:
        if isinstance(event, UsageUncovered) and event.bearer is Bearer.ACCOUNT:
            debts[event.account] += event.amount_micro
        if isinstance(event, CreditAdjusted) and event.cause is AdjustCause.UNCOVERED:
            debts[event.account] += event.amount_micro
    for account in rows["account_view"]:
        name = account["account"]
        assert account["reserved_micro"] == left[name]
        assert account["reservations"] == number[name]
        assert account["debt_micro"] == debts[name]


@LAW
@given(seed=st.integers(0, 1_000_000), kind=st.sampled_from((lived, eventful)))
async def test_tables_and_cluster_say_the_same_of_credits(pool: Pool, seed: int, kind: Any) -> None:
    """What people are shown of accounts and reservations is what the control plane decides by."""
    history = kind(seed, 150)
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, cut(history.records, range(0, 9999, 40)))
        rows = {name: await table(conn, name) for name in KEYS}

    known = history.cluster.credits
    accounts = {row["account"]: row for row in rows["account_view"]}
    assert accounts.keys() == known.books.keys()
    debts = Counter[str]()
    for entry, owed in known.debts.items():
        debts[entry.account] += owed
    for name, book in known.books.items():
        row = accounts[name]
        names = ("entry", "granted", "adjusted", "committed", "reserved", "balance")
        assert [row.get(f"{one}_micro", row.get(one)) for one in names] == [getattr(book, one) for one in names]
        assert (row["reservations"], row["closed"]) == (book.reservations, book.closed)
        assert row["debt_micro"] == debts[name]
        listed = known.payers.by_name.get(name)
        assert row["listed"] is (listed is not None)
        assert row["closing"] is (listed is not None and listed.closed)
    shown = {row["run_id"]: row for row in rows["bill_view"] if row["state"] == "reserved"}
    assert shown.keys() == known.bills.keys()
    for run_id, bill in known.bills.items():
        row = shown[run_id]
        assert row["reserved_micro"] - row["committed_micro"] - row["refunded_micro"] == bill.reserved_micro
        assert (row["account"], row["reservation"], row["covers_s"]) == (bill.account, bill.reservation, bill.covers_s)
        assert row["running_out"] == bill.running_out
        assert bill.committed or row["gpu_us"] == bill.recorded_us
    assert {row["ask_id"] for row in rows["ask_view"] if row["state"] == "asked"} == known.asked.keys()
    assert max((row["month"] for row in rows["period_view"]), default="") == known.month_closed
