"""`reconcile`: three independent sums of every account, at one position: the fold of the log, the tables, and the auditor's.

A difference of one micro-credit, or of one GPU-microsecond, is an alarm, with the accounts, entries and events that differ.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import msgspec

from events.base import START, AccountId, Position, Recorded
from events.credit import CreditCommitted, CreditRefunded, CreditRenewed, CreditReserved, UsageUncovered
from events.log.port import Reader
from projections.cluster.audit.audit import Finding, read
from projections.cluster.audit.books import Books
from projections.cluster.audit.purses import Purse, Tally
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from projections.tables import projection_position
from projections.tables.credit_entry import KIND_OF, EntryKind
from projections.tables.misfits import Misfit, misfits
from projections.tables.projector import check
from projections.tables.schema import EXISTS, LIVE
from runtime.fault import Fault
from runtime.postgres import Connection, Pool

AT_ONCE: Final = 500  # records that are read before others have their turn
FINDINGS_MAX: Final = 20

ACCOUNTS: Final = """
SELECT account, entry, granted_micro, adjusted_micro, committed_micro, reserved_micro, balance_micro, debt_micro,
       reservations, closed
FROM live.account_view
"""
ENTRIES: Final = """
SELECT account, kind, count(*), sum(amount_micro), coalesce(sum(gpu_us), 0), sum(balance_micro)
FROM live.credit_entry GROUP BY account, kind
"""
USAGE: Final = "SELECT account, count(*), sum(amount_micro), sum(gpu_us) FROM live.usage_record GROUP BY account"
BILLS: Final = """
SELECT account, count(*) FILTER (WHERE state = 'reserved'), sum(reserved_micro), sum(committed_micro),
       sum(refunded_micro), sum(uncovered_micro)
FROM live.bill_view GROUP BY account
"""
NOT_BILLED: Final = """
SELECT e.account, sum(e.amount_micro) FROM live.credit_entry e JOIN live.bill_view b ON b.run_id = e.run_id
WHERE e.kind = 'refunded' AND e.cause = 'never_placed' AND (e.account, e.reservation) <> (b.account, b.reservation)
GROUP BY e.account
"""  # reserved and given back before a run was placed, for which another reservation came: its bill is of that one


class Sums(msgspec.Struct, frozen=True):
    """What an account has, as one of the three says."""

    entry: int = 0  # its last
    granted_micro: int = 0
    adjusted_micro: int = 0
    committed_micro: int = 0
    reserved_micro: int = 0
    balance_micro: int = 0
    debt_micro: int = 0
    reservations: int = 0
    closed: bool = False


class Alarm(msgspec.Struct, frozen=True):
    """A sum of an account that is not the same in all places. None: that one does not keep it."""

    account: AccountId
    what: str  # "balance_micro", "committed of credit_entry"
    fold: int | None
    audit: int | None
    tables: int | None


class Reconciled(msgspec.Struct, frozen=True):
    """What was compared, and what differs."""

    position: Position  # that all three reach
    records: int  # of the log up to there
    entries: int
    accounts: dict[AccountId, Sums]  # as the auditor has them
    alarms: tuple[Alarm, ...]
    misfits: tuple[Misfit, ...]  # rows of the tables that make sums differ, a few of each table and account
    findings: tuple[Finding, ...]  # laws that the log breaks, the first few
    broken: int  # how many all of these are
    unread: Position  # the first record of the log that the fold could make nothing of; 0: none

    @property
    def same(self) -> bool:
        """Whether all three say the same, and the log breaks no law."""
        return not self.alarms and not self.broken and not self.unread


async def reconcile(reader: Reader, pool: Pool) -> Reconciled:
    """A comparison of all three at the position that the tables show. Changes nothing, and nobody waits for it.

    Raises `Fault` where there are no tables, or not those of this log.
    """
    async with pool.acquire() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
        if not await conn.fetchval(EXISTS, LIVE):
            raise Fault("tables_absent", "There are no tables yet.", "Start a projector: muster serve projector.")
        reached = await projection_position.shown(conn)
        await check(reader, reached)
        cluster, books, records = Cluster(), Books(), 0
        async for recorded in upto(reader, reached.position):
            cluster = evolve(cluster, recorded)
            read(books, recorded)
            records += 1
        owed = _owed(books)
        alarms = [*_account_alarms(cluster, books, owed, await _accounts(conn)), *await _table_alarms(conn, books)]
        wrong = frozenset(alarm.account for alarm in alarms if alarm.tables is not None)
        named = await misfits(conn, upto(reader, reached.position), wrong) if wrong else ()
    return Reconciled(
        position=reached.position,
        records=records,
        entries=sum(tally.entries for purse in books.credit.purses.values() for tally in purse.tallies.values()),
        accounts={name: _audited(books, name, owed) for name in sorted(books.credit.purses)},
        alarms=tuple(alarms),
        misfits=named,
        findings=tuple(books.findings[:FINDINGS_MAX]),
        broken=len(books.findings),
        unread=cluster.unread,
    )


async def upto(reader: Reader, position: Position) -> AsyncIterator[Recorded]:
    """The records of the log up to a position that it reaches. Others have their turn meanwhile."""
    if position == START:
        return
    async with aclosing(reader.follow(START)) as following:  # type: ignore[type-var]  # it is a generator
        async for stretch in following:
            for number, recorded in enumerate(stretch, 1):
                yield recorded
                if recorded.position >= position:
                    return
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)


async def _accounts(conn: Connection) -> dict[AccountId, Sums]:
    return {record[0]: Sums(*tuple(record)[1:]) for record in await conn.fetch(ACCOUNTS)}


def _owed(books: Books) -> Counter[AccountId]:
    owed: Counter[AccountId] = Counter()
    for debt, amount in books.credit.debts.items():
        owed[debt.account] += amount
    return owed


def _audited(books: Books, account: AccountId, owed: Counter[AccountId]) -> Sums:
    purse = books.credit.purses.get(account, Purse())
    return Sums(
        entry=purse.entry,
        granted_micro=purse.granted,
        adjusted_micro=purse.adjusted,
        committed_micro=purse.committed,
        reserved_micro=purse.reserved,
        balance_micro=purse.balance,
        debt_micro=owed[account],
        reservations=purse.reservations,
        closed=purse.closed,
    )


def _folded(cluster: Cluster, account: AccountId) -> Sums:
    book = cluster.credits.books.get(account)
    if book is None:
        return Sums()
    return Sums(
        entry=book.entry,
        granted_micro=book.granted,
        adjusted_micro=book.adjusted,
        committed_micro=book.committed,
        reserved_micro=book.reserved,
        balance_micro=book.balance,
        debt_micro=book.owed,
        reservations=book.reservations,
        closed=book.closed,
    )


def _account_alarms(
    cluster: Cluster, books: Books, owed: Counter[AccountId], tables: dict[AccountId, Sums]
) -> list[Alarm]:
    """What accounts have, by all three."""
    alarms: list[Alarm] = []
    for account in sorted({*cluster.credits.books, *books.credit.purses, *tables}):
        three = (_folded(cluster, account), _audited(books, account, owed), tables.get(account, Sums()))
        for name in Sums.__struct_fields__:
            fold, audit, table = (int(getattr(sums, name)) for sums in three)
            if not fold == audit == table:
                alarms.append(Alarm(account, name, fold, audit, table))
    return alarms


async def _table_alarms(conn: Connection, books: Books) -> list[Alarm]:
    """What the rows of entries, usage and bills add up to, beside what the auditor says that they do."""
    said: dict[tuple[AccountId, str], int] = {}
    for account, kind, *sums in await conn.fetch(ENTRIES):
        said |= _named(account, f"{kind} entries", Tally(*map(int, sums)))
    for account, *sums in await conn.fetch(USAGE):
        said |= _named(account, "usage records", Tally(*map(int, sums)))
    for account, *sums in await conn.fetch(BILLS):
        names = ("open", "reserved", "committed", "refunded", "uncovered")
        said |= {(account, f"{name} of bills"): int(value) for name, value in zip(names, sums, strict=True)}
    for account, amount in await conn.fetch(NOT_BILLED):
        for key in ((account, "reserved of bills"), (account, "refunded of bills")):
            said[key] = said.get(key, 0) + int(amount)
    due: dict[tuple[AccountId, str], int] = {}
    for account, purse in books.credit.purses.items():
        due |= _due(account, purse)
    keys = sorted(key for key in {*said, *due} if said.get(key, 0) != due.get(key, 0))
    return [Alarm(*key, None, due.get(key, 0), said.get(key, 0)) for key in keys]


def _named(account: AccountId, what: str, tally: Tally) -> dict[tuple[AccountId, str], int]:
    return {(account, f"{name} of {what}"): value for name, value in tally._asdict().items()}


def _due(account: AccountId, purse: Purse) -> dict[tuple[AccountId, str], int]:
    due: dict[tuple[AccountId, str], int] = {}
    for kind, tally in purse.tallies.items():
        due |= _named(account, f"{KIND_OF[kind]} entries", tally)
        if KIND_OF[kind] is EntryKind.USAGE:
            due |= _named(account, "usage records", tally._replace(balances=0))

    def amount(*kinds: type[Any]) -> int:
        return sum(purse.tallies.get(kind, Tally()).amount for kind in kinds)

    of_bills = {
        "open": purse.reservations,
        "reserved": amount(CreditReserved, CreditRenewed),
        "committed": amount(CreditCommitted),
        "refunded": amount(CreditRefunded),
        "uncovered": amount(UsageUncovered),
    }
    return due | {(account, f"{name} of bills"): value for name, value in of_bills.items()}
