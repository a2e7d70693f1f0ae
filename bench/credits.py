"""Credits: reservations through the log, settlements, a long statement, reconciling. `python -m bench.credits [--json]`.

Rounds are those of the control plane, each one append to a log of its own, with fsync on every append.
"""

import argparse
import gc
import json
import tempfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import uvloop

from bench.log import NOW, machine
from events.accounts import Account, AccountsSet
from events.base import AccountId, AskId, Event, JobId, NodeEpoch, Position, Recorded, SlotMask, TeamId
from events.credit import CreditCommitted, CreditReserved
from events.head import LeadershipTaken, LogFounded
from events.job import JobSpec, JobSubmitted
from events.log.append import JetStreamLog
from events.log.memory import MemoryLog
from events.log.streams import StreamSettings, found
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded
from events.policy import ChargeFrom, PolicySet
from events.prices import GpuPrice, PriceList, PricesSet
from events.teller import GrantAsked
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from projections.tables import schema
from projections.tables.rebuild import rebuild
from projections.tables.reconcile import reconcile
from projections.tables.statement import END, Stretch, page
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.nats import connect
from runtime.postgres import Pool, create_pool
from services.control.round import decide_all
from services.main.serve import COLLECT_EVERY

JOBS: Final = 10_000
GPUS: Final = 50
ENTRIES: Final = 1_000_000
AT_ONCE: Final = 10_000  # facts in one append
ROWS: Final = """
INSERT INTO live.credit_entry
SELECT 'large', n, 'granted', 1, n, NULL, NULL, NULL, NULL, NULL, NULL, 'ops', 'a' || n, NULL, NULL, '{}',
       '2026-01-01'::timestamptz + n * interval '1 second', n, 'e' || n
FROM generate_series(1, $1::int) AS n
"""

Append = Callable[[list[Event], Position], Awaitable[Position]]
Row = dict[str, Any]


class Cell:
    """A fold that decides, and the log that it appends to; facts are not appended, but folded alone."""

    def __init__(self, append: Append | None, head: Position) -> None:
        self.cluster = Cluster()
        self.at = NOW
        self.append = append
        self.head = head
        self.position = Position(1)
        self.events = 0

    def fold(self, *events: Event) -> None:
        """These have happened."""
        for event in events:
            self.position = Position(self.position + 1)
            self.cluster = evolve(self.cluster, Recorded(event, self.position, self.at))

    async def decide(self) -> list[Event]:
        """One round, appended and folded."""
        events = decide_all(self.cluster, Tick(at=self.at, position=self.position))
        if events and self.append is not None:
            self.head = Position(await self.append(events, self.head) - len(events) + 1)
        self.fold(*events)
        self.events += len(events)
        return events

    async def rounds(self) -> list[Event]:
        """Rounds until there is nothing more to say."""
        said: list[Event] = []
        while decided := await self.decide():
            said += decided
        return said


def furnish(cell: Cell, accounts: int) -> None:
    """Teams with an account each, rich enough for all that comes, and GPUs for all of it."""
    names = [f"team-{number}" for number in range(accounts)]
    listed = tuple(Account(name=AccountId(name), queues=(TeamId(name),), overdraft_micro=None) for name in names)
    cell.fold(LeadershipTaken(at=NOW, instance="bench", version=""))
    cell.fold(PolicySet(at=NOW, charge_from=ChargeFrom.PLACED, promises=0, preemption=False, admitted_ahead=JOBS))
    cell.fold(
        AccountsSet(at=NOW, accounts=listed), PricesSet(at=NOW, lists=(PriceList(prices=(GpuPrice("", 2_500_000),)),))
    )


def submit(cell: Cell, accounts: int) -> None:
    """As many jobs as there are to be, of one GPU each, of all the teams in turn."""
    for number in range(JOBS):
        spec = JobSpec(name="job", command=("true",), gpus=1, max_runtime_s=3_600)
        ids: Row = {"team": TeamId(f"team-{number % accounts}"), "job_id": JobId(f"j{number}")}
        cell.fold(JobSubmitted(at=NOW, **ids, spec=spec, key=f"k{number}", request_hash=""))


def join(cell: Cell, first: int, end: int) -> None:
    """Some nodes have joined."""
    for number in range(first, end):
        uuids: Any = tuple(f"n{number}-{slot}" for slot in range(GPUS))
        said: Row = {"at": cell.at, "node_id": f"n{number}"}
        what: Row = {"boot_id": "", "instance": "", "gpu_type": "gpu", "address": "", "port_base": 0}
        cell.fold(NodeJoined(**said, **what, gpu_uuids=uuids))
        cell.fold(GpusFoundClean(**said, node_epoch=NodeEpoch(cell.position), gpu_uuids=uuids))


def end_all(cell: Cell) -> None:
    """Every run has ended and given its GPU back, at once."""
    for run in list(cell.cluster.runs.values()):
        for share in run.shares:
            ids: Row = {"at": cell.at, "node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run.run_id}
            cell.fold(ShareEnded(**ids, reason=EndReason.EXITED), GpusReleased(**ids, slots=SlotMask(share.slots)))


async def spending(log: JetStreamLog) -> list[Row]:
    """Reservations on one hot account and over a thousand; then all of those runs settled."""
    rows: list[Row] = []
    cell = Cell(None, Position(0))
    for accounts, what in ((1, "reservations, one account"), (1_000, "reservations, 1,000 accounts")):
        last = await log.last("head")
        assert last is not None
        cell = Cell(lambda events, after: log.append(events, after=after), last.position)
        furnish(cell, accounts)
        submit(cell, accounts)
        join(cell, 0, 1)  # so that there are such GPUs, and next to no room: what is measured is admission
        began = perf_counter(), process_time()
        said = await cell.rounds()
        rows.append(_row(what, sum(isinstance(event, CreditReserved) for event in said), began))
    join(cell, 1, JOBS // GPUS)
    await cell.rounds()
    cell.at += timedelta(seconds=60)
    end_all(cell)
    began = perf_counter(), process_time()
    said = await cell.rounds()
    rows.append(_row("runs settled that end together", sum(isinstance(e, CreditCommitted) for e in said), began))
    return rows


async def reading(pool: Pool) -> list[Row]:
    """The newest page, and one from the middle, of a statement over a million entries."""
    async with pool.acquire() as conn:
        await schema.create(conn, schema.LIVE)
    await pool.execute(ROWS, ENTRIES)
    await pool.execute("ANALYZE live.credit_entry")
    rows = []
    for what, first in (("newest page of 1,000,000 entries", ENTRIES - 99), ("a page in their middle", ENTRIES // 2)):
        began = perf_counter(), process_time()
        for _ in range(20):
            assert len(await page(pool, Stretch(AccountId("large"), first, END), limit=100)) == 100
        rows.append(_row(what, 20, began))
    await pool.execute("TRUNCATE live.credit_entry")
    return rows


async def reconciling(pool: Pool, entries: int) -> list[Row]:
    """All three sums of accounts with so many entries."""
    log = MemoryLog("main", lambda: NOW)
    await log.append([LogFounded(at=NOW, log_id="bench", cell="main")], after=Position(0))
    head = await log.append([LeadershipTaken(at=NOW, instance="b", version="")], after=await log.end())
    cell = Cell(None, Position(0))
    cell.fold(LogFounded(at=NOW, log_id="bench", cell="main"), LeadershipTaken(at=NOW, instance="b", version=""))
    names = [AccountId(f"team-{number}") for number in range(100)]
    document = AccountsSet(at=NOW, accounts=tuple(Account(name=name) for name in names))
    facts: list[Event] = [document]
    facts += [
        GrantAsked(at=NOW, account=names[n % 100], ask_id=AskId(f"a{n}"), key="", request_hash="", amount_micro=n)
        for n in range(entries)
    ]
    for n in range(0, len(facts), AT_ONCE):
        await log.record(facts[n : n + AT_ONCE])
    cell.fold(*facts)
    position = await log.end()
    while decided := decide_all(cell.cluster, Tick(at=NOW, position=position)):
        position = await log.append(decided, after=head)
        head = Position(position - len(decided) + 1)
        for recorded in decided:
            cell.fold(recorded)
    await rebuild(log, pool)
    began = perf_counter(), process_time()
    found_ = await reconcile(log, pool)
    row = _row(f"entries reconciled, of {found_.records} records", found_.entries, began)
    return [row]


def _row(what: str, number: int, began: tuple[float, float]) -> Row:
    took_s, cpu_s = perf_counter() - began[0], process_time() - began[1]
    return {"what": what, "number": number, "per_s": round(number / took_s), "per_cpu_s": round(number / cpu_s)}


async def main(*, as_json: bool) -> None:
    """The figures are printed."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        server = EmbeddedNats(Path(folder))
        await server.start()
        connection = await connect(server.login("system"), name="bench")
        try:
            await found(connection, StreamSettings())
            rows = await spending(JetStreamLog(connection))
        finally:
            await connection.close()
            await server.stop()
        postgres = EmbeddedPostgres(Path(folder))
        await postgres.start()
        pool = await create_pool(postgres.dsn, name="bench", size_max=2, statement_max_s=600.0)
        try:
            rows += [*await reading(pool), *await reconciling(pool, 100_000)]
        finally:
            await pool.close()
            await postgres.stop()
    if as_json:
        print(json.dumps({"machine": machine(), "rows": rows}))
        return
    print(machine())
    for row in rows:
        print(f"{row['what']:<48}{row['number']:>9}{row['per_s']:>10}/s{row['per_cpu_s']:>10} a second of cpu")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    gc.set_threshold(*COLLECT_EVERY)  # loop and settings are those of the processes
    uvloop.run(main(as_json=arguments.json))
