"""Laws of the tables: how a log was cut into stretches, and how often it came, leaves no trace in them."""

import json
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events.base import START, Position, Recorded, SlotMask
from projections.tables import job_view, schema
from projections.tables.fold import Tables
from projections.tables.rows import slots_of
from projections.tables.verify import KEYS, compare
from runtime.postgres import Pool
from tests.projections.tables.written import cut, empty, eventful, fill, histories, last, lived, recorded, table

LAW = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@LAW
@given(records=histories(), places=st.lists(st.integers(0, 10_000), max_size=8))
async def test_any_cut_gives_the_rows_of_one_by_one(pool: Pool, records: list[Recorded], places: list[int]) -> None:
    """Stretches are an accident of reading: the rows of a rebuild are those of live running."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, cut(records, places))
        await fill(conn, schema.SCRATCH, [(record,) for record in records])
        verified = await compare(conn)

    assert verified.differences == ()
    assert verified.position == last(records)


@LAW
@given(records=histories(), places=st.lists(st.integers(0, 10_000), max_size=4), data=st.data())
async def test_twice_is_once(pool: Pool, records: list[Recorded], places: list[int], data: st.DataObject) -> None:
    """A stretch that comes again, whole or in part, changes nothing; nor does another projector beside."""
    async with pool.acquire() as conn:
        await fill(conn, schema.SCRATCH, [records])
        await empty(conn, schema.LIVE)
        projectors = [Tables(schema.LIVE), Tables(schema.LIVE)]
        for stretch in cut(records, places):
            projectors.reverse()  # each finds at times that the other was first
            start = data.draw(st.integers(0, len(records))) % (records.index(stretch[-1]) + 1)
            again = tuple(records[start : records.index(stretch[-1]) + 1])
            reached = records[start - 1].position if start else START
            for projector in projectors:
                assert await projector.take(conn, stretch, after=_before(records, stretch))
                assert await projector.take(conn, again, after=reached)
        verified = await compare(conn)

    assert verified.differences == ()


@LAW
@given(records=histories(steps=50))
async def test_nothing_moves_a_job_that_has_ended(pool: Pool, records: list[Recorded]) -> None:
    """Whatever comes after the end of a job or a run, its row stays as it was."""
    async with pool.acquire() as conn:
        await empty(conn, schema.LIVE)
        tables, ended = Tables(schema.LIVE), dict[Any, Any]()
        for stretch in cut(records, range(0, 999, 9)):
            assert await tables.take(conn, stretch, after=_before(records, stretch))
            rows = [*await table(conn, "job_view"), *await table(conn, "run_view")]
            now = {(row["run_id"], row["job_id"], "key" in row): row for row in rows if row["ended_at"] is not None}
            assert {key: now.get(key) for key in ended} == ended
            ended = now


@LAW
@given(records=histories())
async def test_queues_count_the_jobs_there_are(pool: Pool, records: list[Recorded]) -> None:
    """Counters moved by changes are what a count of all jobs gives."""
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, cut(records, range(0, 999, 13)))
        counted: dict[str, Counter[str]] = {}
        for job in await table(conn, "job_view"):
            row = counted.setdefault(job["team"], Counter())
            held = (job["gpus_placed"] or 0) * (job["state"] in job_view.HOLDING)
            row.update({job["state"]: 1, "gpus_held": held, "borrowed": held * bool(job["borrowing"])})
            row.update({"gpus_waiting": job["gpus"] * (job["state"] in {"queued", "admitted"})})
            row.update({f"used {job['gpu_type'] or ''}": held})
        shown = await table(conn, "queue_view")

    numbers = {"gpus_held", "gpus_waiting", "borrowed", *job_view.JobState}
    found = {
        row["team"]: {name: row[name] for name in numbers}
        | {f"used {kind}": gpus for kind, gpus in json.loads(row["used"]).items()}
        for row in shown
    }
    assert {team: +Counter(row) for team, row in found.items() if any(row.values())} == {
        team: +row for team, row in counted.items()
    }


@LAW
@given(seed=st.integers(0, 1_000_000))
async def test_tables_and_cluster_say_the_same(pool: Pool, seed: int) -> None:
    """What users are shown is what the control plane decides by: jobs that are open, and whose each GPU is."""
    history = lived(seed, 150)
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, cut(recorded(record.event for record in history.records), range(0, 9999, 50)))
        jobs = {row["job_id"]: row for row in await table(conn, "job_view") if row["state"] in job_view.OPEN}
        gpus = await table(conn, "gpu_view")
        nodes = {row["node_id"]: row for row in await table(conn, "node_view")}

    cluster = history.cluster
    assert jobs.keys() == cluster.jobs.keys()
    for job_id, job in cluster.jobs.items():
        placed = job.state == "placed"
        assert (jobs[job_id]["state"] in job_view.HOLDING) is placed
        assert placed or jobs[job_id]["state"] == job.state
        assert jobs[job_id]["attempt"] == job.attempt
        assert jobs[job_id]["cancel_at"] is not None or not job.cancel
    assert {node_id: row["state"] for node_id, row in nodes.items()} == {n: v.state for n, v in cluster.nodes.items()}
    assert {row["node_id"]: row["epoch"] for row in gpus} == {n: v.epoch for n, v in cluster.nodes.items()}
    for row in gpus:
        node, bit = cluster.nodes[row["node_id"]], 1 << row["slot"]
        assert row["uuid"] == node.uuids[row["slot"]]
        holders = [run_id for run_id, slots in node.held.items() if slots & bit]
        assert row["run_id"] == (holders[0] if holders else None)
        assert (row["state"] == "free") is bool(node.free & bit)


@LAW
@given(seed=st.integers(0, 1_000_000))
async def test_what_is_set_aside_promised_and_used_is_what_the_cluster_says(pool: Pool, seed: int) -> None:
    """Earmarks, promises, use by type, borrowing, cordons and checkpoints: shown as the control plane decides by them."""
    history = eventful(seed, 180)
    cluster = history.cluster
    assert not cluster.unread
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, cut(history.records, range(0, 9999, 40)))
        rows = {name: await table(conn, name) for name in KEYS}

    marks = {
        (node_id, job_id, slot)
        for node_id, node in cluster.nodes.items()
        for job_id, mask in node.earmarked.items()
        for slot in slots_of(SlotMask(mask))
    }
    assert {(r["node_id"], r["earmarked_for"], r["slot"]) for r in rows["gpu_view"] if r["earmarked_for"]} == marks
    assert {r["job_id"] for r in rows["job_view"] if r["earmark"]} == cluster.earmarks.keys()
    shown = {r["job_id"]: r for r in rows["promise_view"] if r["outcome"] == "open"}
    assert shown.keys() == cluster.promises.keys()
    for job_id, promise in cluster.promises.items():
        row = shown[job_id]
        assert (row["first_start"], row["start"], row["moves"]) == (promise.first, promise.start, promise.moves)
        assert (row["position"], sum(json.loads(row["causes"]).values())) == (promise.position, promise.moves)
    used, borrowed = Counter[tuple[str, str]](), Counter[str]()
    for use, gpus in cluster.usage.items():
        used[use.team, use.gpu_type] += gpus
    for run in cluster.runs.values():
        borrowed[run.team] += run.gpus * cluster.jobs[run.job_id].borrowing
    queues = {r["team"]: r for r in rows["queue_view"]}
    assert used == {(t, kind): n for t, r in queues.items() for kind, n in json.loads(r["used"]).items()}
    assert +borrowed == {team: r["borrowed"] for team, r in queues.items() if r["borrowed"]}
    assert {team: r["weight"] for team, r in queues.items() if r["listed"]} == {
        team: queue.weight for team, queue in cluster.queues.items()
    }
    for r in rows["node_view"]:
        node = cluster.nodes[r["node_id"]]
        assert (r["cordoned_at"] is not None) is node.cordoned
        assert (json.loads(r["labels"]), tuple(r["taints"])) == (node.labels, node.taints)
    runs = {r["run_id"]: r for r in rows["run_view"]}
    for run_id, run in cluster.runs.items():
        row = runs[run_id]
        assert (row["saved_at"], row["evicted_for"] or "", bool(row["moved"])) == (
            run.saved_at, run.evicted_for, run.moved
        )  # fmt: skip
        assert row["gpus"] == run.gpus


def _before(records: list[Recorded], stretch: tuple[Recorded, ...]) -> Position:
    """The position that a stretch follows."""
    start = records.index(stretch[0])
    return records[start - 1].position if start else START
