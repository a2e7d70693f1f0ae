"""Statements of accounts from `credit_entry`: entries in order, page by page, and what they add up to by kind."""

from datetime import datetime
from typing import Final, NamedTuple

from events.base import Position, RunId
from projections.tables.credit_entry import SIGNS, EntryKind, EntryRow
from runtime.postgres import Connection, Pool

# Entries and times of an account rise together, so that times say between which entries to look.
BOUNDS: Final = """
SELECT CASE WHEN $2::timestamptz IS NULL THEN 0 ELSE coalesce(
           (SELECT entry FROM live.credit_entry WHERE account = $1 AND at >= $2 ORDER BY at, entry LIMIT 1), $4) END,
       CASE WHEN $3::timestamptz IS NULL THEN $4 ELSE coalesce(
           (SELECT entry FROM live.credit_entry WHERE account = $1 AND at >= $3 ORDER BY at, entry LIMIT 1), $4) END
"""
LAST: Final = """
SELECT entry FROM live.credit_entry
WHERE account = $1 AND entry >= $2 AND entry < $3 AND ($4::text[] IS NULL OR kind = ANY($4))
ORDER BY entry DESC OFFSET $5 LIMIT 1
"""
PAGE: Final = """
SELECT account, entry, kind, amount_micro, balance_micro, run_id, job_id, team, reservation, cause, reason, by, ask_id,
       gpu_us, of_entry, evidence, at, position, event_id, gpus, covers_s, until
FROM live.credit_entry
WHERE account = $1 AND entry >= $2 AND entry < $3 AND ($4::text[] IS NULL OR kind = ANY($4))
ORDER BY entry LIMIT $5
"""
TOTALS: Final = """
SELECT kind, count(*), sum(amount_micro)::bigint FROM live.credit_entry
WHERE account = $1 AND entry >= $2 AND entry < $3 AND ($4::text[] IS NULL OR kind = ANY($4))
GROUP BY kind
"""
# A commit comes before its run is settled, and hardly anything between: looked for backwards from there.
COMMITTED: Final = """
SELECT entry.account, entry.entry, entry.position, entry.amount_micro
FROM live.bill_view AS bill
JOIN LATERAL (
    SELECT account, entry, position, amount_micro FROM live.credit_entry
    WHERE account = bill.account AND at <= bill.settled_at AND entry > bill.reservation
      AND kind = 'committed' AND run_id = bill.run_id
    ORDER BY at DESC, entry DESC LIMIT 1
) AS entry ON true
WHERE bill.run_id = $1 AND bill.state = 'settled'
"""
END: Final = (1 << 63) - 1  # beyond every entry


class Stretch(NamedTuple):
    """Which entries of an account."""

    account: str
    first: int = 0  # from this one on
    end: int = END  # exclusive
    kinds: frozenset[EntryKind] | None = None  # None: all

    @property
    def named(self) -> list[str] | None:
        """The kinds as PostgreSQL compares them."""
        return sorted(self.kinds) if self.kinds is not None else None


class Total(NamedTuple):
    """All entries of a kind."""

    kind: EntryKind
    entries: int
    amount_micro: int

    @property
    def change_micro(self) -> int:
        """What they changed the balance by."""
        return SIGNS.get(self.kind, 0) * self.amount_micro


class Commit(NamedTuple):
    """The entry by which a run was charged."""

    account: str
    entry: int
    position: Position
    amount_micro: int


async def between(
    db: Pool | Connection, stretch: Stretch, *, since: datetime | None = None, until: datetime | None = None
) -> Stretch:
    """The stretch without entries before `since`, and without those at `until` or later."""
    bounds = await db.fetchrow(BOUNDS, stretch.account, since, until, END)
    assert bounds is not None
    first, end = bounds
    return stretch._replace(first=max(stretch.first, first), end=min(stretch.end, end))


async def last_of(db: Pool | Connection, stretch: Stretch, number: int) -> Stretch:
    """The last so many entries of the stretch."""
    first = await db.fetchval(LAST, stretch.account, stretch.first, stretch.end, stretch.named, number - 1)
    return stretch if first is None else stretch._replace(first=first)


async def page(db: Pool | Connection, stretch: Stretch, *, limit: int) -> list[EntryRow]:
    """The first `limit` entries of the stretch, the oldest first."""
    records = await db.fetch(PAGE, stretch.account, stretch.first, stretch.end, stretch.named, limit)
    return [EntryRow(*record) for record in records]


async def totals(db: Pool | Connection, stretch: Stretch) -> list[Total]:
    """What the entries of each kind that is among them add up to, in the order of `EntryKind`."""
    records = await db.fetch(TOTALS, stretch.account, stretch.first, stretch.end, stretch.named)
    found = {kind: Total(EntryKind(kind), number, amount) for kind, number, amount in records}
    return [found[kind] for kind in EntryKind if kind in found]


async def commit_of(db: Pool | Connection, run_id: RunId) -> Commit | None:
    """The entry by which the run was charged; None: it is not settled, was never placed, or nobody pays for it."""
    record = await db.fetchrow(COMMITTED, run_id)
    return Commit(*record) if record is not None else None
