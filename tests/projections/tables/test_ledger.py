"""`Ledger`: no record of it is left out. What cannot be read, or held, stops all tables before it."""

import msgspec
import pytest

from events.accounts import Account
from events.base import START, AccountId, Event, Unreadable, position_of, spelled
from events.log.memory import MemoryLog
from projections.tables import account_view, credit_entry, job_view, projection_position, schema, unreadable
from projections.tables.fold import Tables
from projections.tables.projector import Progress, project
from projections.tables.rebuild import rebuild
from projections.tables.verify import verify
from runtime.clock import ManualClock
from runtime.fault import Fault
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.paid import RED, Purse, accounts, asked, granted
from tests.projections.tables.running import projecting, record, submitted
from tests.projections.tables.written import empty, fill, last, recorded

LISTED = accounts(Account(name=RED))


def _illegible(subject: str) -> Unreadable:
    return Unreadable(at=BEGIN, subject=subject, named="musterbook.credit.lent.v1", reason="no such type is known")


@pytest.mark.parametrize("subject", ["credit.red", "teller.red.a1", "period"])
async def test_a_record_of_the_ledger_that_cannot_be_read_stops_all_tables(pool: Pool, subject: str) -> None:
    """They show everything up to it, and say which one it is; a version that reads it goes on from there."""
    bad = _illegible(subject)
    records = recorded(
        [LISTED, submitted(1, BEGIN), granted(1, "k", 100), bad, submitted(2, BEGIN), granted(2, "l", 5)]
    )
    async with pool.acquire() as conn:
        await empty(conn, schema.LIVE)
        tables = Tables(schema.LIVE)
        for _ in range(2):  # again: nothing has changed
            with pytest.raises(Fault) as stopped:
                await tables.take(conn, tuple(records), after=START)
            assert stopped.value.code == "ledger_unreadable"
            assert f"Record {spelled(records[3].position)}" in stopped.value.sentence
            assert "musterbook.credit.lent.v1" in stopped.value.sentence
            assert (await projection_position.read(conn)).position == records[2].position
        assert len(await job_view.jobs(conn)) == 1
        assert await unreadable.count(conn) == 0

        known = msgspec.structs.replace(records[3], event=submitted(3, BEGIN))
        assert await Tables(schema.LIVE).take(conn, (known, *records[4:]), after=records[2].position)
        assert (await projection_position.read(conn)).position == last(records)
        (red,) = await account_view.accounts(conn)
    assert red.balance_micro == 105


async def test_one_that_comes_first_stops_them_too(pool: Pool) -> None:
    """Nothing is written then."""
    async with pool.acquire() as conn:
        with pytest.raises(Fault, match="stand still before it"):
            await fill(conn, schema.LIVE, [recorded([_illegible("credit.red")])])
        assert (await projection_position.read(conn)).position == 0


@pytest.mark.parametrize("subject", ["job.t.j1", "node.n1", "accounts", "prices", "credits.red", "musterbook"])
async def test_all_others_are_parked(pool: Pool, subject: str) -> None:
    """What no balance depends on is named in `unreadable`, and all that follow it are shown."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([LISTED, _illegible(subject), granted(1, "k", 100)])])
        (row,) = await unreadable.records(conn)
        (red,) = await account_view.accounts(conn)
    assert (row.position, row.subject) == (position_of(1, 2), subject)
    assert red.balance_micro == 100


@pytest.mark.parametrize(
    "beyond",
    [
        granted(2, "k", 2**70),
        granted(2, "k", 2**63 - 50),  # with what was there before
        asked("k", 2**70),
        msgspec.structs.replace(Purse(entry=1).reserved(5), covers_s=2**64),
    ],
    ids=["amount", "sum", "ask", "covers"],
)
async def test_one_whose_values_no_table_holds_stops_them(pool: Pool, beyond: Event) -> None:
    """In the middle of others, it is found, and named."""
    fine = [LISTED, granted(1, "j", 100), *(submitted(number, BEGIN) for number in range(9))]
    records = recorded([*fine, beyond, submitted(10, BEGIN)])
    async with pool.acquire() as conn:
        with pytest.raises(Fault) as stopped:
            await fill(conn, schema.LIVE, [records])
        assert (await projection_position.read(conn)).position == records[-3].position
        assert len(await job_view.jobs(conn)) == 9

    assert stopped.value.code == "ledger_unreadable"
    assert spelled(records[-2].position) in stopped.value.sentence
    assert "beyond what the tables hold" in stopped.value.sentence


async def test_who_follows_rebuilds_or_verifies_is_told(log: MemoryLog, pool: Pool, clock: ManualClock) -> None:
    """The projector stops after what comes before; a rebuild leaves the live tables as they are."""
    async with projecting(log, pool):
        before = await record(log, range(3), clock)
        await rebuild(log, pool)
    log.write_raw("credit.red", b"not json")
    await record(log, range(3, 6), clock)

    with pytest.raises(Fault, match=r"Record 1:5 on 'credit\.red'") as stopped:
        await project(log, pool, Progress())
    assert "newer" in stopped.value.hint
    assert (await projection_position.shown(pool)).position == before
    with pytest.raises(Fault, match="Record 1:5"):
        await rebuild(log, pool)
    assert len(await job_view.jobs(pool)) == 3
    assert (await verify(log, pool)).differences == ()  # they are right up to there


async def test_an_account_without_document_has_its_entries(pool: Pool) -> None:
    """What moves a balance is shown, whoever is listed."""
    other = AccountId("other")
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([granted(1, "k", 100, other)])])
        (row,) = await account_view.accounts(conn)
        assert (row.account, row.listed, row.balance_micro) == (other, False, 100)
        assert [entry.balance_micro for entry in await credit_entry.entries(conn, other)] == [100]
