"""How fast accounts spend, what jobs cost so far, and what keeps months open."""

import re
from datetime import timedelta

from msgspec.structs import replace

from events.accounts import Account
from events.base import GpuUuid, JobId, NodeEpoch, NodeId, RunId, SlotMask
from events.credit import AdjustCause, CreditAdjusted, EndedAs, RefundCause
from events.job import JobPlaced, JobSpec, JobSubmitted, NodeShare, RunStarted
from events.node import NodeJoined
from events.policy import Bearer
from projections.tables import schema, spending
from projections.tables.spending import Cost
from runtime.postgres import Pool
from tests.histories import BEGIN
from tests.projections.tables.paid import BLUE, JOB, RED, TEAM, Purse, accounts, asked, granted
from tests.projections.tables.written import fill, recorded

J2 = JobId("j2")
COMMITS = """
INSERT INTO live.credit_entry
    (account, entry, kind, cause, amount_micro, balance_micro, run_id, job_id, of_entry, evidence, at, position, event_id)
SELECT 'red', number, CASE WHEN number % 9 > 0 THEN 'committed' ELSE 'adjusted' END,
       CASE WHEN number % 9 > 0 THEN 'succeeded' ELSE 'refund' END, 5, 0, 'j' || number || '-1', 'j' || number,
       CASE WHEN number % 9 > 0 THEN NULL ELSE number - 1 END, '{}', $1, number, 'e'
FROM generate_series(1, 20000) AS number
"""


def job(job_id: JobId = JOB) -> JobSubmitted:
    """It is submitted."""
    spec = JobSpec(name="a", command=("x",), gpus=8)
    return JobSubmitted(at=BEGIN, team=TEAM, job_id=job_id, key=job_id, request_hash="h", spec=spec)


def runs(job_id: JobId = JOB) -> list[JobPlaced | RunStarted]:
    """Its first run has 8 GPUs and goes on."""
    run_id, share = RunId(f"{job_id}-1"), NodeShare(NodeId("n"), NodeEpoch(1), SlotMask(255))
    return [
        JobPlaced(at=BEGIN, team=TEAM, job_id=job_id, run_id=run_id, attempt=1, shares=(share,)),
        RunStarted(at=BEGIN, team=TEAM, job_id=job_id, run_id=run_id),
    ]


NODE = NodeJoined(
    at=BEGIN, node_id=NodeId("n"), boot_id="b", instance="i", gpu_type="h100",
    gpu_uuids=tuple(GpuUuid(f"G{n}") for n in range(8)), address="", port_base=1,
)  # fmt: skip


async def test_what_was_recorded_since_a_time_is_counted(pool: Pool) -> None:
    """Of each account; of an earlier time only when the first use was."""
    red, blue = Purse(), Purse(BLUE, run_id=RunId("j2-1"))
    early = replace(red.used(5, 1), at=BEGIN - timedelta(days=40), began=BEGIN - timedelta(days=40))
    late = [red.used(100, 1), red.used(-30, -1, corrects=True), blue.used(7, 1)]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([accounts(), early, *late])])
        all_of_it = await spending.recorded(conn, BEGIN)
        (alone,) = await spending.recorded(conn, BEGIN - timedelta(days=41), account="red")
        none = await spending.recorded(conn, BEGIN + timedelta(seconds=1), account="blue")

    assert {(one.account, one.micro, one.first) for one in all_of_it} == {(RED, 70, early.began), (BLUE, 7, BEGIN)}
    assert (alone.account, alone.micro) == (RED, 75)
    assert [(one.micro, one.first) for one in none] == [(0, BEGIN)]


async def test_what_goes_on_counts_from_its_last_record(pool: Pool) -> None:
    """Or from its start; what is settled, waits, or is paid for by others does not."""
    red, blue, late = Purse(), Purse(BLUE, run_id=RunId("j2-1")), Purse(entry=2, run_id=RunId("j3-1"))
    before = [NODE, job(), job(J2), job(JobId("j3")), red.reserved(300), blue.reserved(300), late.reserved(9)]
    records = recorded([*before, *runs(), *runs(J2), blue.used(7, 1)])
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [records])
        going = {one.account: one for one in await spending.running(conn)}
        alone = await spending.running(conn, account="blue")
        unrecorded = [
            await spending.unrecorded_before(conn, BEGIN + span)
            for span in (timedelta(), timedelta(minutes=9), timedelta(hours=9))
        ]
        types = await spending.gpu_types(conn)

    assert set(going) == {RED, BLUE}
    assert (going[RED].since, going[RED].gpus, going[RED].nano_per_gpu_hour) == (records[len(before) + 1].at, 8, 2_500)
    assert alone == [going[BLUE]]
    assert going[BLUE].since == BEGIN + timedelta(hours=1)
    assert unrecorded == [0, 1, 2]  # that of blue is recorded up to an hour after
    assert types == ["h100"]


async def test_a_job_costs_what_its_runs_were_charged(pool: Pool) -> None:
    """And what is set aside for the one that is not settled; uncovered use only where the account bears it."""
    first, second, other = Purse(), Purse(entry=4, run_id=RunId("j1-2")), Purse(BLUE, run_id=RunId("j2-1"))
    events = [
        first.reserved(300), first.uncovered(9), first.committed(220, 90, outcome=EndedAs.INTERRUPTED),
        first.refunded(80, RefundCause.INTERRUPTED), second.reserved(50), second.renewed(25),
        other.reserved(10), other.uncovered(5, Bearer.PROVIDER), other.committed(10, 1),
    ]  # fmt: skip
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded(events)])
        costs = await spending.costs(conn, [JOB, J2, JobId("j9")])

    assert costs == {JOB: Cost(RED, 75, True, 229), J2: Cost(BLUE, 0, False, 10)}


async def test_what_was_given_back_is_that_of_the_commit_it_names(pool: Pool) -> None:
    """Added up by run. What an account pays of a debt, and what is adjusted without naming a commit, is none."""
    red, later, blue = Purse(), Purse(run_id=RunId("j1-2")), Purse(BLUE, run_id=RunId("j2-1"))
    first = [red.reserved(300), red.uncovered(7), red.committed(300, 9), red.paid(2, 7)]
    later.entry = red.entry
    second = [later.reserved(50), later.committed(50, 9)]
    other = [blue.reserved(9), blue.used(9, 9), blue.committed(9, 9)]  # its third entry, as of the other account
    back = [
        CreditAdjusted(**later.next(), amount_micro=amount, cause=cause, of_entry=of)
        for amount, cause, of in (
            (100, AdjustCause.REFUND, 3), (20, AdjustCause.REFUND, 3), (5, AdjustCause.REFUND, 6), (1, AdjustCause.OPERATOR, 0)
        )
    ]  # fmt: skip
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([accounts(), *first, *second, *other, *back])])
        found = await spending.given_back(conn, [JOB, J2, JobId("j9")])

    assert {(one.job_id, one.run_id, one.micro) for one in found} == {(JOB, "j1-1", 120), (JOB, "j1-2", 5)}


async def test_asks_wait_until_they_are_answered(pool: Pool) -> None:
    """One way or the other."""
    events = [accounts(Account(name=RED)), asked("1", 5), asked("2", 5), asked("3", -5)]
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [recorded([*events, granted(1, "2", 5)])])
        assert await spending.asks_waiting(conn) == 2


async def test_what_was_given_back_is_looked_up(pool: Pool) -> None:
    """However many commits there are: lists of jobs ask it each time."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [])
        await conn.execute(COMMITS, BEGIN)
        await conn.execute("ANALYZE live.credit_entry")
        plan = await conn.fetchval(f"EXPLAIN (FORMAT JSON) {spending.GIVEN_BACK}", ["j7", "j8"])
        found = await spending.given_back(conn, [JobId("j8")])
    assert "Seq Scan" not in plan
    assert {"credit_entry_committed", "credit_entry_given_back"} <= set(re.findall(r'"Index Name": "(\w+)"', plan))
    assert [one.micro for one in found] == [5]
