"""`misfits`: which rows of some accounts are not what the log says, each with its entry and its event."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from events.base import START, AccountId, Position, Recorded
from events.credit import (
    CreditCommitted,
    CreditEvent,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    UsageRecorded,
    UsageUncovered,
)
from projections.cluster.audit.audit import read
from projections.cluster.audit.books import Books
from projections.tables.credit_entry import KIND_OF
from runtime.postgres import Connection

MISFITS_MAX: Final = 20  # of each table and account

ENTRIES: Final = """
SELECT account, entry::text, kind, amount_micro, coalesce(gpu_us, 0), balance_micro
FROM live.credit_entry WHERE account = ANY($1)
"""
USAGE: Final = "SELECT account, usage_id, entry, amount_micro, gpu_us FROM live.usage_record WHERE account = ANY($1)"
BILLS: Final = """
SELECT account, run_id, reserved_micro, committed_micro, refunded_micro, uncovered_micro
FROM live.bill_view WHERE account = ANY($1)
"""
COLUMNS: Final = {
    "credit_entry": ("kind", "amount_micro", "gpu_us", "balance_micro"),
    "usage_record": ("entry", "amount_micro", "gpu_us"),
    "bill_view": ("reserved_micro", "committed_micro", "refunded_micro", "uncovered_micro"),
}
BILLED: Final[dict[type[CreditEvent], int]] = {
    CreditReserved: 0,
    CreditRenewed: 0,
    CreditCommitted: 1,
    CreditRefunded: 2,
    UsageUncovered: 3,
}  # which of those columns an entry adds to

Key = tuple[str, AccountId, str]  # table, account, and the entry, record or run


class Misfit(msgspec.Struct, frozen=True):
    """A row that is not what the log says."""

    table: str
    account: AccountId
    row: str  # the number of the entry, the id of the usage record, the run
    column: str
    tables: str | int | None  # None: there is no such row
    log: str | int | None  # None: the log has nothing of the kind
    position: Position  # of the event; of the last one, for a run; 0: there is none
    event_id: str


class _Said(msgspec.Struct):
    values: list[Any]
    position: Position
    event_id: str


async def misfits(
    conn: Connection, records: AsyncIterator[Recorded], accounts: frozenset[AccountId]
) -> tuple[Misfit, ...]:
    """The rows of these accounts that differ from what the records say, the first few of each table and account."""
    log = await _by_the_log(records, accounts)
    tables: dict[Key, list[Any]] = {}
    for table, query in (("credit_entry", ENTRIES), ("usage_record", USAGE), ("bill_view", BILLS)):
        for account, row, *values in await conn.fetch(query, sorted(accounts)):
            tables[table, account, row] = values
    found: list[Misfit] = []
    counted: Counter[tuple[str, AccountId]] = Counter()
    for key in sorted({*log, *tables}, key=_order):
        for misfit in _compared(key, tables.get(key), log.get(key)):
            counted[key[:2]] += 1
            if counted[key[:2]] <= MISFITS_MAX:
                found.append(misfit)
    return tuple(found)


def _order(key: Key) -> tuple[str, str, int, str]:
    return key[0], key[1], int(key[2]) if key[2].isdecimal() else 0, key[2]


def _compared(key: Key, tables: list[Any] | None, log: _Said | None) -> Iterator[Misfit]:
    table, account, row = key
    position, event_id = (log.position, log.event_id) if log is not None else (START, "")
    if tables is None or log is None:
        said = "there" if tables is not None else None, "there" if log is not None else None
        yield Misfit(table, account, row, "row", *said, position, event_id)
        return
    for column, is_, due in zip(COLUMNS[table], tables, log.values, strict=True):
        if is_ != due:
            yield Misfit(table, account, row, column, is_, due, position, event_id)


async def _by_the_log(records: AsyncIterator[Recorded], accounts: frozenset[AccountId]) -> dict[Key, _Said]:
    """What the rows of these accounts are, as the auditor reads the log."""
    books, said = Books(), dict[Key, _Said]()
    payer: dict[str, AccountId] = {}  # of each run
    async for recorded in records:
        read(books, recorded)
        e = recorded.event
        if isinstance(e, CreditReserved):  # once more for a run that was not placed: its bill is a new one
            said.pop(("bill_view", payer.get(e.run_id, e.account), e.run_id), None)
            payer[e.run_id] = e.account
        if not isinstance(e, CreditEvent) or e.account not in accounts:
            continue
        amount, gpu_us = getattr(e, "amount_micro", 0), getattr(e, "gpu_us", 0)
        balance = books.credit.purses[e.account].balance
        entry = [KIND_OF[type(e)].value, amount, gpu_us, balance]
        said["credit_entry", e.account, str(e.entry)] = _Said(entry, recorded.position, recorded.id)
        if isinstance(e, UsageRecorded):
            usage = _Said([e.entry, amount, gpu_us], recorded.position, recorded.id)
            said["usage_record", e.account, e.usage_id] = usage
        if (column := BILLED.get(type(e))) is not None:
            bill = said.setdefault(("bill_view", e.account, getattr(e, "run_id", "")), _Said([0] * 4, START, ""))
            bill.values[column] += amount
            bill.position, bill.event_id = recorded.position, recorded.id
    return said
