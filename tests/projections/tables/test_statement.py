"""Statements: entries in order, page by page, and their sums, looked up and not searched for."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from events.base import RunId
from projections.tables import credit_entry, schema, statement
from projections.tables.credit_entry import EntryKind
from projections.tables.statement import END, Stretch
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.paid import BLUE, paying
from tests.projections.tables.written import fill, recorded

MANY = 30_000
GENERATED = """
INSERT INTO live.credit_entry (account, entry, kind, amount_micro, balance_micro, evidence, at, position, event_id)
SELECT 'a' || number % 3, number / 3 + 1, CASE WHEN number % 50 < 3 THEN 'committed' ELSE 'usage' END, 1, 0, '{}',
       $2::timestamptz + number / 3 * interval '1 second', number, 'e'
FROM generate_series(0, $1 - 1) AS number
"""


@pytest.fixture
async def filled(pool: Pool) -> Pool:
    """The tables hold what happened on two accounts."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(paying(5, 200).events)])
    return pool


async def test_a_statement_is_what_lies_between(filled: Pool) -> None:
    """Two times, or two entries, of some kinds; pages join without a gap or a repeat."""
    every = await credit_entry.entries(filled, BLUE)
    whole = Stretch(BLUE)
    assert await statement.page(filled, whole, limit=1_000) == every
    paged, first = [], 0
    while page := await statement.page(filled, whole._replace(first=first), limit=7):
        paged += page
        first = page[-1].entry + 1
    assert paged == every

    middle = await statement.between(filled, whole, since=every[20].at, until=every[60].at)
    assert await statement.page(filled, middle, limit=1_000) == every[20:60]
    assert await statement.page(filled, await statement.last_of(filled, middle, 5), limit=1_000) == every[55:60]
    some = middle._replace(kinds=frozenset({EntryKind.GRANTED, EntryKind.REFUNDED}))
    listed = [row for row in every[20:60] if row.kind in {"granted", "refunded"}]
    assert await statement.page(filled, some, limit=1_000) == listed
    assert await statement.page(filled, await statement.last_of(filled, some, 2), limit=9) == listed[-2:]
    assert await statement.last_of(filled, some, 1_000) == some
    later = await statement.between(filled, whole, since=every[-1].at + timedelta(seconds=1))
    assert await statement.page(filled, later, limit=9) == []
    assert await statement.between(filled, whole) == whole


async def test_sums_by_kind_are_what_the_balance_changed_by(filled: Pool) -> None:
    """Of all entries, they come to the balance."""
    every = await credit_entry.entries(filled, BLUE)
    totals = await statement.totals(filled, Stretch(BLUE))

    assert sum(total.entries for total in totals) == len(every)
    assert sum(total.change_micro for total in totals) == every[-1].balance_micro
    kinds = [total.kind for total in totals]
    assert kinds == [kind for kind in EntryKind if kind in kinds]


async def test_the_commit_of_a_settled_run_is_found(filled: Pool) -> None:
    """Of one that is not settled, or was never placed, there is none."""
    found = {row.run_id: row for row in await credit_entry.entries(filled, BLUE) if row.kind == "committed"}
    bills = [
        record["run_id"] for record in await filled.fetch("SELECT run_id FROM live.bill_view WHERE account = 'blue'")
    ]
    assert 0 < len(found) < len(bills)
    for run_id in bills:
        commit = await statement.commit_of(filled, RunId(run_id))
        assert (commit is None) is (run_id not in found)
        if commit is not None:
            assert (commit.entry, commit.position) == (found[RunId(run_id)].entry, found[RunId(run_id)].position)


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_a_long_statement_is_looked_up(pool: Pool, plans: str) -> None:
    """However many entries there are, a page costs about as many as it shows: no table is read whole, nothing sorted."""
    stretch: tuple[Any, ...] = ("a1", 4_000, END, None)
    asked: list[tuple[str, tuple[Any, ...]]] = [
        (statement.PAGE, (*stretch, 100)),
        (statement.LAST, (*stretch, 99)),
        (statement.BOUNDS, ("a1", BEGIN + timedelta(seconds=100), BEGIN + timedelta(seconds=5_000), END)),
        (credit_entry.ENTRIES, ("a1", 4_000, 100)),
    ]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [])
        await conn.execute(GENERATED, MANY, BEGIN)
        await conn.execute("ANALYZE live.credit_entry")
        await conn.execute(f"SET plan_cache_mode TO {plans}")
        for query, arguments in asked:
            assert {node["Node Type"] for node in await _plan(conn, query, *arguments)} <= {
                "Limit", "Result", "Index Scan", "Index Only Scan"
            }  # fmt: skip
            read = [node["Actual Rows"] for node in await _plan(conn, query, *arguments) if "Index Name" in node]
            assert sum(read) <= 100


async def _plan(conn: Any, query: str, *arguments: Any) -> list[dict[str, Any]]:
    """Every step by which PostgreSQL answers the query."""
    explained = await conn.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {query}", *arguments)
    return _nodes(msgspec.json.decode(explained)[0]["Plan"])


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for inner in plan.get("Plans", []) for node in _nodes(inner))]
