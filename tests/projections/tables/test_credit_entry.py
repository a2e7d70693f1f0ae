"""`credit_entry`: every entry, with the balance after it and what its event does not say."""

from datetime import timedelta
from typing import Any

import msgspec

from events.base import AskId
from events.credit import AskRefused, EndedAs, RefundCause
from projections.tables import credit_entry, schema
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.paid import BLUE, JOB, RED, RUN, TEAM, Purse, accounts, asked, closed, granted, paying
from tests.projections.tables.written import fill, recorded


async def test_entries_say_whose_run_it_was_and_who_asked(pool: Pool) -> None:
    """What an event leaves out is on the bill or in the ask: a reader of a statement need not look elsewhere."""
    purse = Purse(entry=2)
    refusal = AskRefused(at=BEGIN, account=RED, entry=2, ask_id=AskId("al"), code="not_covered", message="No.")
    refund = purse.reserved(300), purse.renewed(1), purse.used(2, 3), purse.running_out(), purse.committed(200, 3)
    last = purse.refunded(101, RefundCause.INTERRUPTED, gpu_us=5, evidence=("e1", "e2"))
    events = [accounts(), asked("k", 1_000), granted(1, "k", 1_000), asked("l", -9), refusal, *refund, last]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        rows = await credit_entry.entries(conn, RED)

    assert [row.kind for row in rows] == [
        "granted", "refused", "reserved", "renewed", "usage", "running_out", "committed", "refunded"
    ]  # fmt: skip
    assert [row.balance_micro for row in rows] == [1_000, 1_000, 700, 699, 699, 699, 699, 800]
    assert [row.change_micro for row in rows] == [1_000, 0, -300, -1, 0, 0, 0, 101]
    grant, refused, *of_run = rows
    assert (grant.ask_id, grant.cause, grant.evidence) == ("ak", None, [])
    assert (refused.ask_id, refused.cause, refused.reason, refused.amount_micro) == ("al", "not_covered", "No.", 0)
    assert {(row.run_id, row.job_id, row.team, row.reservation or 3) for row in of_run} == {(RUN, JOB, TEAM, 3)}
    assert [row.reservation for row in of_run] == [3] * 6
    *_, usage, _, commit, given_back = rows
    assert (usage.gpu_us, usage.amount_micro, commit.gpu_us, commit.cause) == (3, 2, 3, EndedAs.SUCCEEDED)
    assert (given_back.cause, given_back.gpu_us, given_back.evidence) == ("interrupted", 5, ["e1", "e2"])
    reserved, renewed, _, out, *_ = of_run
    assert [(row.gpus, row.covers_s, row.until) for row in (grant, reserved, renewed)] == [
        (None, None, None), (8, 3600, None), (None, 3600, None)
    ]  # fmt: skip
    assert (out.gpus, out.covers_s, out.until) == (None, None, BEGIN + timedelta(hours=1))
    assert rows[-1].position == recorded(events)[-1].position
    assert (rows[-1].at, rows[-1].event_id) == (recorded(events)[-1].at, recorded(events)[-1].id)


async def test_who_asked_is_told_although_the_control_plane_wrote_it(pool: Pool) -> None:
    """By the ask, where the entry names nobody; a name in the entry holds."""
    events = [
        accounts(),
        *(purse := _listed()),
        granted(1, "k", 5),
        msgspec.structs.replace(granted(2, "l", 5), by="me"),
    ]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        rows = await credit_entry.entries(conn, RED)

    assert len(purse) == 2
    assert [row.by for row in rows] == ["ops", "me"]


def _listed() -> list[Any]:
    return [asked("k", 5), asked("l", 5)]


async def test_entries_come_in_pages(pool: Pool) -> None:
    """One after the other, of one account alone, without a gap or a repeat."""
    happened = paying(5, 100)
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(happened.events)])
    every = await credit_entry.entries(pool, BLUE)
    assert [row.entry for row in every] == list(range(1, happened.purses[BLUE].entry + 1))
    assert every[4:9] == await credit_entry.entries(pool, BLUE, after=4, limit=5)
    assert await credit_entry.entries(pool, BLUE, after=every[-1].entry) == []
    assert await credit_entry.entries(pool, "other") == []


async def test_texts_of_others_are_made_fit(pool: Pool) -> None:
    """What people say reaches the column, whatever it holds: it must not stop the ledger."""
    odd = msgspec.structs.replace(granted(1, "k", 5), reason="a\0b\ud800")
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([odd, closed(Purse(entry=1))])])
        first, second = await credit_entry.entries(conn, RED)

    assert first.reason == "a\ufffdb?"
    assert (second.kind, second.reason, second.amount_micro, second.gpu_us) == ("closed", None, 0, None)
