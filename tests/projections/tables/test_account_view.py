"""`account_view`: what the document says of each account, and what its entries add up to."""

from events.accounts import Account
from events.base import AccountId
from events.policy import Bearer
from projections.tables import account_view, schema
from projections.tables.account_view import AccountRow
from projections.tables.fold import Tables
from runtime.postgres import Pool
from tests.projections.tables.paid import BLUE, RED, TEAM, Purse, accounts, closed, granted
from tests.projections.tables.written import fill, recorded


async def test_accounts_are_what_the_document_in_force_says(pool: Pool) -> None:
    """One that is left out keeps what it has and pays for nothing new; one without bound has no such number."""
    first = accounts(Account(name=RED, queues=(TEAM,), overdraft_micro=500), Account(name=BLUE, closed=True))
    second = accounts(Account(name=BLUE, overdraft_micro=None))
    records = recorded([first, granted(1, "k", 100), second])
    async with pool.acquire() as conn:
        tables = await fill(conn, schema.LIVE, [records[:2]])
        blue, red = await account_view.accounts(conn)
        assert (red.queues, red.overdraft_micro, red.listed, red.headroom_micro) == ([TEAM], 500, True, 600)
        assert (blue.closing, blue.closed) == (True, False)

        assert await tables.take(conn, tuple(records[2:]), after=records[1].position)
        blue, red = await account_view.accounts(conn)

    assert (red.queues, red.overdraft_micro, red.listed) == ([], 0, False)
    assert (red.balance_micro, red.entry, red.position) == (100, 1, records[2].position)
    assert (blue.overdraft_micro, blue.headroom_micro, blue.closing) == (None, None, False)
    assert await account_view.account(pool, RED) == red
    assert await account_view.account(pool, "other") is None


async def test_a_new_document_takes_from_accounts_that_are_not_in_memory(pool: Pool) -> None:
    """Another projector goes on with a document that leaves out an account which it has not read yet."""
    records = recorded([accounts(Account(name=RED)), accounts()])
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [records[:1]])
        assert await Tables(schema.LIVE).take(conn, tuple(records[1:]), after=records[0].position)
        (red,) = await account_view.accounts(conn)

    assert not red.listed
    assert red.position == records[1].position


async def test_each_entry_moves_what_it_says(pool: Pool) -> None:
    """From available to reserved, from there to spent or back; what is uncovered is owed until it is paid."""
    purse = Purse(entry=1)
    events = [
        granted(1, "k", 1_000),
        purse.reserved(300),
        purse.renewed(50),
        purse.uncovered(7),
        purse.uncovered(9, Bearer.PROVIDER),
        purse.committed(200, 9),
        purse.refunded(150),
        purse.paid(4, 3),
    ]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        row = await account_view.account(conn, RED)

    assert row == AccountRow(
        RED,
        granted_micro=1_000,
        adjusted_micro=-3,
        committed_micro=200,
        balance_micro=797,
        debt_micro=4,
        entry=8,
        position=recorded(events)[-1].position,
    )


async def test_an_account_is_closed_for_ever(pool: Pool) -> None:
    """By its last entry, whatever the document says later."""
    purse = Purse(AccountId("old"))
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([closed(purse), accounts(Account(name=purse.account))])])
        row = await account_view.account(conn, purse.account)

    assert row is not None
    assert (row.closed, row.closing, row.listed) == (True, False, True)


async def test_an_entry_counts_once(pool: Pool) -> None:
    """An account's entry under a number that it has already changes nothing."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([granted(1, "k", 100), granted(1, "l", 50), granted(2, "m", 5)])])
        row = await account_view.account(conn, RED)

    assert row is not None
    assert (row.balance_micro, row.entry) == (105, 2)
