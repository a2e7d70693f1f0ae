"""`bill_view`: what a run had reserved, used, cost and was given back, and why."""

from datetime import timedelta

import msgspec

from events.base import Position, RunId
from events.credit import EndedAs, RefundCause
from events.policy import Bearer
from projections.tables import account_view, bill_view, schema
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.paid import BLUE, JOB, RED, RUN, TEAM, Purse
from tests.projections.tables.written import fill, recorded


async def test_a_bill_goes_from_reserved_to_settled(pool: Pool) -> None:
    """What it shows on the way, and that in the end reserved is committed and refunded."""
    purse = Purse()
    records = recorded(
        [
            purse.reserved(300, declared=False),
            purse.running_out(),
            purse.renewed(50),
            purse.used(100, 40),
            purse.uncovered(9),
            purse.committed(220, 90, outcome=EndedAs.INTERRUPTED),
            purse.refunded(100, RefundCause.INTERRUPTED, gpu_us=30, evidence=("e1",)),
            purse.refunded(30),
        ]
    )
    shown = []
    async with pool.acquire() as conn:
        for number in range(1, len(records) + 1):
            await fill(conn, schema.LIVE, [records[:number]])
            shown.append(await bill_view.bill(conn, RUN))
    bills = [bill for bill in shown if bill is not None]
    assert len(bills) == len(records)

    first, told, more, used, *_, before, last = bills
    assert (first.job_id, first.team, first.account, first.reservation, first.prices) == (JOB, TEAM, RED, 1, 7)
    assert (first.state, first.declared, first.covers_s, first.reserved_micro) == ("reserved", False, 3600, 300)
    assert (first.gpu_type, first.nano_per_gpu_hour, first.reserved_at) == (None, 2_500, records[0].at)
    assert told.running_out == BEGIN + timedelta(hours=1)
    assert (more.running_out, more.covers_s, more.reserved_micro) == (None, 7200, 350)
    assert (used.gpu_type, used.gpu_us) == ("h100", 40)
    assert (before.state, before.settled_at, before.outcome) == ("reserved", None, "interrupted")
    assert (last.state, last.settled_at, last.position) == ("settled", records[-1].at, records[-1].position)
    assert (last.committed_micro, last.refunded_micro) == (220, 130)
    assert (last.gpu_us, last.waived_us, last.evidence) == (90, 30, ["e1"])
    assert (last.uncovered_micro, last.bearer) == (9, Bearer.ACCOUNT)


async def test_a_run_that_was_never_placed_is_settled_by_its_refund(pool: Pool) -> None:
    """Also by one of nothing; what is given back before a run is over settles none."""
    free, trimmed = Purse(run_id=RunId("j2-1")), Purse(entry=2, run_id=RunId("j3-1"))
    events = [
        free.reserved(0),
        free.refunded(0, RefundCause.NEVER_PLACED),
        trimmed.reserved(10),
        trimmed.refunded(10, RefundCause.TRIMMED),
    ]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        never, given = await bill_view.bill(conn, RunId("j2-1")), await bill_view.bill(conn, RunId("j3-1"))

    assert never is not None
    assert given is not None
    assert (never.state, never.outcome) == ("settled", "never_placed")
    assert (given.state, given.refunded_micro, given.outcome) == ("reserved", 10, None)


async def test_a_settled_bill_changes_no_more(pool: Pool) -> None:
    """Nor does an entry of another account, or about a run without a bill, change one."""
    purse, other = Purse(), Purse(BLUE)
    events = [
        other.renewed(9),  # about a run that has no bill yet
        purse.reserved(10),
        other.committed(10, 1),
        purse.committed(10, 1),
        purse.renewed(5),
    ]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        (bill,) = await bill_view.bills_of(conn, JOB)

    assert (bill.state, bill.reserved_micro, bill.committed_micro, bill.reservation) == ("settled", 10, 10, 1)
    assert bill.position == recorded(events)[3].position


async def test_a_run_that_is_reserved_for_again_has_a_new_bill(pool: Pool) -> None:
    """Its job was admitted, waited in vain, and is admitted once more, perhaps on another account and at other prices."""
    purse, other = Purse(), Purse(BLUE, entry=4)
    again = msgspec.structs.replace(other.reserved(7, declared=False), prices=Position(9))
    records = recorded([purse.reserved(10), purse.refunded(10, RefundCause.NEVER_PLACED), again])
    async with pool.acquire() as conn:
        for stretches in ([records], [(record,) for record in records]):
            await fill(conn, schema.LIVE, stretches)
            (bill,) = await bill_view.bills_of(conn, JOB)
            red, blue = await account_view.account(conn, RED), await account_view.account(conn, BLUE)

            assert (bill.state, bill.account, bill.reservation, bill.declared) == ("reserved", BLUE, 5, False)
            assert (bill.reserved_micro, bill.refunded_micro, bill.outcome, bill.settled_at) == (7, 0, None, None)
            assert (bill.prices, bill.reserved_at) == (9, records[2].at)
            assert red is not None
            assert blue is not None
            assert (red.reservations, blue.reservations) == (0, 1)


async def test_bills_are_found_by_job(pool: Pool) -> None:
    """In the order of its attempts, also beyond nine."""
    purse, events = Purse(), []
    for attempt in range(1, 12):
        purse.run_id = RunId(f"{JOB}-{attempt}")
        events.append(purse.reserved(attempt))
        if attempt % 2:
            events.append(purse.committed(attempt, 1))
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])

    assert [bill.reserved_micro for bill in await bill_view.bills_of(pool, JOB)] == list(range(1, 12))
    assert await bill_view.bill(pool, RunId("other-1")) is None


async def test_a_bill_is_found_by_a_shortened_id(pool: Pool) -> None:
    """The beginning of the run's, or of its job's with the attempt; a whole id means no longer one."""
    purse, events = Purse(), []
    for run_id in ("jab1-1", "jab1-2", "jab12-1", "jac-1", "jac-11"):
        purse.run_id = RunId(run_id)
        events.append(purse.reserved(1))
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])

    for name, runs in (
        ("jab1-1", ["jab1-1"]),
        ("jab1", ["jab1-1", "jab1-2", "jab12-1"]),
        ("jab-2", ["jab1-2"]),
        ("jab-1", ["jab1-1", "jab12-1"]),
        ("jac-1", ["jac-1"]),
        ("jac-", ["jac-1", "jac-11"]),
        ("jab12", ["jab12-1"]),
    ):
        assert [bill.run_id for bill in await bill_view.named(pool, name)] == runs, name
    for none in ("", "-1", "jab-3", "jab-%", "x", "\0", "jab1-١"):
        assert await bill_view.named(pool, none) == [], none
