"""`ask_view`: what operators asked of accounts, and what became of it."""

import msgspec

from events.accounts import Account
from events.base import AccountId
from events.credit import AdjustCause, AskRefused, CreditAdjusted
from projections.tables import ask_view, schema
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.paid import BLUE, RED, Purse, accounts, asked, closed, granted
from tests.projections.tables.written import fill, recorded

OPEN = accounts(Account(name=RED), Account(name=BLUE))


async def test_an_ask_is_answered_once(pool: Pool) -> None:
    """By the first entry that names it, of its own account."""
    grant, down, refused = asked("g", 100), asked("d", -5), asked("r", -900)
    adjustment = CreditAdjusted(
        at=BEGIN, account=RED, entry=2, ask_id=down.ask_id, amount_micro=-5, cause=AdjustCause.OPERATOR
    )
    no = AskRefused(at=BEGIN, account=RED, entry=3, ask_id=refused.ask_id, code="not_covered", message="No.")
    again = msgspec.structs.replace(no, entry=4, ask_id=grant.ask_id)
    strange = granted(1, "x", 5, BLUE)
    events = [OPEN, grant, down, refused, asked("x", 7), granted(1, "g", 100), adjustment, no, again, strange]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        rows = {row.ask_id: row for row in await ask_view.asks_of(conn, RED)}

    done = rows[grant.ask_id]
    assert (done.kind, done.amount_micro, done.state, done.entry, done.code) == ("grant", 100, "done", 1, None)
    assert (done.by, done.reason, done.asked_at) == ("ops", "why g", recorded(events)[1].at)
    assert done.position == recorded(events)[5].position
    assert (rows[down.ask_id].kind, rows[down.ask_id].state, rows[down.ask_id].entry) == ("adjustment", "done", 2)
    denied = rows[refused.ask_id]
    assert (denied.state, denied.code, denied.message, denied.entry) == ("refused", "not_covered", "No.", 3)
    assert (await ask_view.ask(pool, "ax"), list(rows)) == (rows["ax"], ["ax", "ar", "ad", "ag"])  # type: ignore[index]
    assert rows["ax"].state == "asked"  # type: ignore[index]
    assert await ask_view.ask(pool, "other") is None
    assert len(await ask_view.asks_of(pool, RED, limit=2)) == 2


async def test_what_is_asked_of_an_account_that_was_closed_meanwhile_is_refused(pool: Pool) -> None:
    """No entry will ever answer it: nobody waits for one. Nor of an account that there is not."""
    late, nowhere = asked("k", 5), asked("l", 5, AccountId("other"))
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([OPEN, closed(Purse()), late, nowhere])])
        first, second = await ask_view.ask(conn, late.ask_id), await ask_view.ask(conn, nowhere.ask_id)

    assert first is not None
    assert second is not None
    assert (first.state, first.code, first.entry) == ("refused", "account_closed", None)
    assert (second.state, second.code) == ("refused", "no_account")


async def test_what_is_asked_while_the_closing_of_its_account_is_decided_is_refused(pool: Pool) -> None:
    """It is in the log before the closing, which was decided without it; also where the tables were written in between."""
    before, other = asked("k", 5), asked("l", 5, BLUE)
    events = recorded([OPEN, before, other, closed(Purse())])
    for stretches in ([events], [events[:3], events[3:]]):
        async with pool.acquire() as conn, conn.transaction():
            await fill(conn, schema.LIVE, stretches)
            first, second = await ask_view.ask(conn, before.ask_id), await ask_view.ask(conn, other.ask_id)
            await conn.execute("TRUNCATE live.ask_view, live.account_view, live.credit_entry")

        assert first is not None
        assert second is not None
        assert (first.state, first.code, first.entry, first.position) == (
            "refused",
            "account_closed",
            None,
            events[3].position,
        )
        assert second.state == "asked"
