"""`reconcile` compares three sums of every account, and names what differs to the micro-credit."""

from typing import Any

import pytest

from events.base import AccountId, AskId
from events.credit import CreditCommitted, CreditGranted, RefundCause
from events.job import AdmissionWithdrawn
from events.log.memory import MemoryLog
from projections.tables.rebuild import rebuild
from projections.tables.reconcile import Reconciled, Sums, reconcile
from runtime.fault import Fault
from runtime.postgres import Pool
from tests.projections.cluster.audit.auditing import TEAM, admitted, succeeded
from tests.projections.cluster.audit.crediting import ALPHA, CREDIT, PER_GPU_S, Paid, kept

GHOST = AccountId("ghost")


async def reconciled(pool: Pool, book: Paid, *changes: str) -> Reconciled:
    """The comparison, after somebody changed the tables by hand."""
    log = await kept(book.records)
    await rebuild(log, pool)
    for change in changes:
        assert await pool.execute(change) != "UPDATE 0"
    return await reconcile(log, pool)


def spent() -> Paid:
    """An account of which one run is settled, and for another credits are reserved."""
    book = Paid()
    book.settled("one")
    book.admit("two")
    return book


async def test_what_agrees_is_counted_and_shown(pool: Pool) -> None:
    """Up to which position, over how many records and entries, and what each account has."""
    book = spent()
    found = await reconciled(pool, book)

    assert found.same
    assert (found.position, found.records) == (book.records[-1].position, len(book.records))
    assert found.entries == book.entries[ALPHA]
    reserved, committed = 2 * 100 * PER_GPU_S, 2 * 60 * PER_GPU_S
    assert found.accounts == {
        ALPHA: Sums(
            entry=book.entries[ALPHA],
            granted_micro=100 * CREDIT,
            committed_micro=committed,
            reserved_micro=reserved,
            balance_micro=100 * CREDIT - committed - reserved,
            reservations=1,
        )
    }


@pytest.mark.parametrize(
    ("table", "column", "where", "row"),
    [
        ("credit_entry", "amount_micro", "kind = 'committed'", "4"),
        ("credit_entry", "balance_micro", "entry = 2", "2"),
        ("credit_entry", "gpu_us", "kind = 'usage'", "3"),
        ("usage_record", "amount_micro", "true", "one-1-1"),
        ("usage_record", "gpu_us", "true", "one-1-1"),
        ("bill_view", "refunded_micro", "run_id = 'one-1'", "one-1"),
    ],
)
async def test_one_unit_in_one_row_is_named(pool: Pool, table: str, column: str, where: str, row: str) -> None:
    """The account, the row, what it says and what the log does, and the event that says so."""
    book = spent()
    found = await reconciled(pool, book, f"UPDATE live.{table} SET {column} = {column} + 1 WHERE {where}")

    assert not found.same
    assert {alarm.account for alarm in found.alarms} == {ALPHA}
    (misfit,) = found.misfits
    assert (misfit.table, misfit.account, misfit.row, misfit.column) == (table, ALPHA, row, column)
    assert isinstance(misfit.tables, int)
    assert misfit.tables - 1 == misfit.log
    assert any(record.position == misfit.position for record in book.records)
    assert misfit.event_id
    assert (found.broken, found.unread) == (0, 0)


def reserved_again() -> Paid:
    """Credits were reserved for a run, given back before it was placed, and reserved anew, after which it ran."""
    book = spent()
    job_id = book.admit("three")
    book.decide(AdmissionWithdrawn(at=book.now, team=TEAM, job_id=job_id))
    book.decide(book.refunded(job_id, 2 * 100 * PER_GPU_S, RefundCause.NEVER_PLACED))
    book.decide(admitted(job_id), book.reserved(job_id))
    return book


async def test_a_run_that_is_reserved_for_again_has_one_bill(pool: Pool) -> None:
    """Its bill is of the last reservation; the one before it is in the entries alone, and nothing differs."""
    assert (await reconciled(pool, reserved_again())).same


async def test_one_unit_in_the_bill_of_a_run_that_is_reserved_for_again_is_named(pool: Pool) -> None:
    """By what its last reservation says."""
    change = "UPDATE live.bill_view SET reserved_micro = reserved_micro + 1 WHERE run_id = 'three-1'"
    found = await reconciled(pool, reserved_again(), change)

    (misfit,) = found.misfits
    reserved = 2 * 100 * PER_GPU_S
    assert (misfit.row, misfit.column, misfit.tables, misfit.log) == (
        "three-1",
        "reserved_micro",
        reserved + 1,
        reserved,
    )


@pytest.mark.parametrize("column", ["granted_micro", "reserved_micro", "balance_micro", "debt_micro", "reservations"])
async def test_one_unit_in_the_sum_of_an_account_is_named(pool: Pool, column: str) -> None:
    """All its rows are right; what they add up to was changed."""
    book = spent()
    found = await reconciled(pool, book, f"UPDATE live.account_view SET {column} = {column} - 1")

    (alarm,) = found.alarms
    assert (alarm.account, alarm.what) == (ALPHA, column)
    assert alarm.fold == alarm.audit == (alarm.tables or 0) + 1
    assert found.misfits == ()


async def test_an_entry_that_was_deleted_or_made_up_in_the_table_is_named(pool: Pool) -> None:
    """Also of an account that the log never heard of."""
    copied = "SELECT 'ghost', entry, kind, 0, 0, run_id, job_id, team, reservation, cause, reason, by, ask_id, gpu_us,"
    rest = "of_entry, evidence, at, position, event_id FROM live.credit_entry WHERE entry = 1"
    book = spent()
    log = await kept(book.records)
    await rebuild(log, pool)
    await pool.execute("DELETE FROM live.credit_entry WHERE entry = 4")
    await pool.execute(f"INSERT INTO live.credit_entry {copied} {rest}")
    found = await reconcile(log, pool)

    assert {alarm.account for alarm in found.alarms} == {ALPHA, GHOST}
    said = [(m.account, m.row, m.column, m.tables, m.log) for m in found.misfits]
    assert said == [(ALPHA, "4", "row", None, "there"), (GHOST, "1", "row", "there", None)]


async def test_a_record_that_somebody_made_up_in_the_log_is_named(pool: Pool) -> None:
    """Credits that nobody asked for: the fold takes none of them, the auditor counts them and says where they are."""
    book = spent()
    made_up: Any = book.entry(CreditGranted, ask_id=AskId("mine"), amount_micro=1)
    book.decide(made_up)
    log = await kept(book.records)
    await rebuild(log, pool)
    found = await reconcile(log, pool)

    assert not found.same
    assert found.unread == book.records[-1].position
    (finding,) = found.findings
    assert (finding.position, finding.law) == (book.records[-1].position, "asked for, and answered once")
    assert "CreditGranted, entry 7 of alpha" in finding.message
    granted = next(alarm for alarm in found.alarms if alarm.what == "granted_micro")
    assert (granted.fold, granted.audit) == (100 * CREDIT, 100 * CREDIT + 1)


async def test_a_run_that_was_charged_a_unit_too_much_is_named(pool: Pool) -> None:
    """Fold and tables agree with each other: only who counts the use on its own sees it."""
    book = Paid()
    job_id = book.admit()
    book.place(job_id)
    began = book.now
    book.wait(60)
    book.end(job_id)
    book.decide(succeeded(job_id))
    paid: CreditCommitted = book.committed(job_id, began, book.now, amount_micro=2 * 60 * PER_GPU_S + 1)
    usage = book.usage(job_id, began, book.now, amount_micro=2 * 60 * PER_GPU_S + 1)
    book.entries[ALPHA] -= 2
    again = {name: getattr(usage, name) for name in usage.__struct_fields__ if name not in ("account", "entry")}
    pays = {name: getattr(paid, name) for name in paid.__struct_fields__ if name not in ("account", "entry")}
    entries = (book.entry(type(usage), **again), book.entry(CreditCommitted, **pays))
    book.decide(*entries, book.refunded(job_id, 2 * 40 * PER_GPU_S - 1))
    found = await reconciled(pool, book)

    assert found.alarms == ()
    assert not found.same
    assert {finding.law for finding in found.findings} == {"recorded as used", "charged as used"}
    assert all("job-1" in finding.message for finding in found.findings)


async def test_more_findings_than_fit_are_counted(pool: Pool) -> None:
    """Nobody reads ten thousand of them."""
    book = Paid()
    for number in range(30):
        book.decide(book.entry(CreditGranted, ask_id=AskId(f"mine{number}"), amount_micro=1))
    found = await reconciled(pool, book)

    assert (len(found.findings), found.broken) == (20, 30)


async def test_without_tables_there_is_nothing_to_compare(pool: Pool) -> None:
    """It says what makes them."""
    with pytest.raises(Fault) as raised:
        await reconcile(await kept(spent().records), pool)
    assert raised.value.code == "tables_absent"


async def test_tables_of_another_log_are_not_compared(pool: Pool) -> None:
    """The difference would say nothing."""
    await rebuild(await kept(spent().records), pool)
    await pool.execute("UPDATE live.projection_position SET log_id = 'another'")

    with pytest.raises(Fault) as raised:
        await reconcile(await kept(spent().records), pool)
    assert raised.value.code == "tables_of_another_log"


async def test_tables_that_are_behind_are_compared_where_they_are(pool: Pool) -> None:
    """What they do not show yet is not missing."""
    book = spent()
    before = list(book.records)
    book.grant(CREDIT, "more")
    log: MemoryLog = await kept(before)
    await rebuild(log, pool)
    found = await reconcile(await kept(book.records), pool)

    assert found.same
    assert found.position == before[-1].position
    assert found.accounts[ALPHA].granted_micro == 100 * CREDIT
