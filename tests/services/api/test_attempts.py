"""Attempts of a job over HTTP: whose failure each end was, in a sentence, with the records that say so; and resuming."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from events.base import GpuUuid, JobId, NodeId, Position, RunId
from events.fleet import NodeLost
from events.gpu import GpuAction, GpuJudged, GpuSignal
from events.job import FailureCategory, JobFailed, JobRequeued, RunStopping, StopCause
from events.node import CheckpointSaved, EndReason, ShareEnded
from projections.tables.run_view import Attempt
from services.api.attempts import BY_CATEGORY, BY_CAUSE, sentence
from tests.histories import BEGIN
from tests.services.api.cell import CLOCK, NODE, TEAM, Cell
from tests.services.api.test_events import sent


def attempt(**said: Any) -> Attempt:
    """A run that ended so."""
    ended: dict[str, Any] = {
        "run_id": "jx-1", "job_id": "jx", "team": "red", "attempt": 1, "state": "requeued", "cause": None,
        "exit_code": None, "failed_node": "n1", "gpus": 8, "nodes": 1, "node_ids": ["n1"], "placed_at": BEGIN,
        "started_at": BEGIN, "stopping_at": None, "ended_at": BEGIN, "position": Position(9),
    }  # fmt: skip
    return Attempt(**ended | said)


SENTENCES: list[tuple[dict[str, Any], str]] = [
    ({"category": "node", "cause": "node_lost"}, "n1 was lost"),
    (
        {"category": "node", "cause": "node_lost", "reason": "node_rebooted"},
        "all that ran on n1 was ended: it was rebooted, or somebody did so",
    ),
    (
        {"category": "node", "cause": "node_lost", "failed_node": None},
        "its GPUs came back without a word how it ended",
    ),
    (
        {"category": "node", "cause": "start_failed", "message": "no cgroup"},
        "n1 could not start its ranks: no cgroup",
    ),
    ({"category": "node", "cause": "start_deadline"}, "n1 had not started its ranks in time"),
    ({"category": "gpu", "cause": "gpu"}, "a GPU of n1 failed"),
    ({"category": "user", "cause": "rank_failed", "exit_code": 3}, "a rank on n1 exited with 3"),
    ({"category": "user", "cause": "rank_failed", "exit_code": 137}, "a rank on n1 exited with 137 (signal 9)"),
    (
        {"category": "out_of_memory", "cause": "rank_failed", "exit_code": 137},
        "the kernel killed a rank on n1 for want of memory",
    ),
    (
        {"category": "control_plane", "cause": "node_lost"},
        "n1 was cut off from the control plane, and ended its ranks",
    ),
    ({"category": "time_limit", "cause": "time_limit", "state": "timed_out"}, "it reached its time limit"),
    ({"category": "preempted", "cause": "preempted", "evicted_for": "jy"}, "it was stopped for jy"),
    ({"category": "preempted", "cause": "consolidated", "evicted_for": "jy"}, "it was moved for jy"),
    ({"category": "preempted", "cause": "queue_held"}, "its queue was put on hold"),
    ({"cause": "drain"}, "n1 was drained"),
    ({"cause": "credits"}, "what was reserved for it was used up"),
    ({"cause": "cancel", "state": "cancelled"}, "it was cancelled"),
    ({"cause": "node_lost"}, "node lost"),  # of a control plane that knew no categories
    ({"state": "running", "ended_at": None}, ""),
    ({"state": "succeeded", "cause": "gpu"}, ""),
]


@pytest.mark.parametrize(("said", "text"), SENTENCES)
def test_each_end_has_a_sentence(said: dict[str, Any], text: str) -> None:
    """Also while the log does not answer."""
    assert sentence(attempt(**said), None) == text


def test_every_cause_and_category_has_one() -> None:
    """One that is added is told of here."""
    by_category = {StopCause.RANK_FAILED, StopCause.NODE_LOST, StopCause.GPU, StopCause.TIME_LIMIT}
    assert set(BY_CAUSE) == set(StopCause) - by_category
    assert set(BY_CATEGORY) == set(FailureCategory) - {FailureCategory.NONE, FailureCategory.PREEMPTED}


async def test_attempts_are_told_with_the_records_that_say_what_ended_them(cell: Cell) -> None:
    """A node that was lost after so many seconds of silence; then the user's own exit code."""
    await cell.join()
    job_id = JobId((await cell.submit("k", retries_application=0))["job_id"])
    await cell.run(job_id)
    of: dict[str, Any] = {"at": CLOCK.now(), "team": TEAM, "job_id": job_id, "run_id": RunId(f"{job_id}-1")}
    by_node: dict[str, Any] = {"at": CLOCK.now(), "node_id": NODE, "node_epoch": cell.epoch}
    await cell.log.record([CheckpointSaved(**by_node, run_id=of["run_id"], number=7)])
    await cell.decide(NodeLost(**by_node, silent_s=92.0))
    node_lost: dict[str, Any] = {"cause": StopCause.NODE_LOST, "category": FailureCategory.NODE, "node_id": NODE}
    not_before = CLOCK.now() + timedelta(seconds=1)
    position = await cell.decide(JobRequeued(**of, **node_lost, not_before=not_before, avoid=(NODE,)))

    job = await cell.get(f"/v1/jobs/{job_id}", min_position=position)

    (first,) = job["attempts"]
    assert (first["category"], first["node_id"], first["checkpoint"], first["held"]) == ("node", NODE, 7, False)
    assert first["ended_by"] == f"{NODE} was lost after 92 s of silence"
    assert [one["type"] for one in first["evidence"]] == ["musterbook.node.lost.v1"]
    assert first["lost_gpu_s"] is not None
    assert (job["category"], job["cause"]) == ("node", "node_lost")


async def test_a_gpu_that_was_judged_is_named_with_the_rule(cell: Cell) -> None:
    """Of the records about its node the one that decided is read; the share's own word is evidence too."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    await cell.run(job_id)
    run_id = RunId(f"{job_id}-1")
    by_node: dict[str, Any] = {"at": CLOCK.now(), "node_id": NodeId(NODE), "node_epoch": cell.epoch}
    ended = ShareEnded(**by_node, run_id=run_id, reason=EndReason.EXITED, exit_code=1)
    await cell.log.record([ended])
    verdict = GpuJudged(
        **by_node, gpu_uuid=GpuUuid("GPU-1"), signalled=Position(1), signal=GpuSignal.XID, code=79,
        action=GpuAction.EVICT, table="1", rule="xid 79",
    )  # fmt: skip
    noted = msgspec.structs.replace(verdict, code=63, action=GpuAction.LOG, rule="xid 63")
    earlier = msgspec.structs.replace(verdict, code=94, action=GpuAction.RESTART, rule="xid 94")  # of another's GPU
    of: dict[str, Any] = {"at": CLOCK.now(), "team": TEAM, "job_id": job_id, "run_id": run_id}
    by_gpu: dict[str, Any] = {"cause": StopCause.GPU, "category": FailureCategory.GPU, "node_id": NodeId(NODE)}
    position = await cell.decide(
        earlier,
        verdict,
        noted,
        RunStopping(**of, cause=StopCause.GPU, node_id=NodeId(NODE)),
        noted,
        JobFailed(**of, **by_gpu),
    )
    job = await cell.get(f"/v1/jobs/{job_id}", min_position=position)
    (only,) = job["attempts"]
    assert only["ended_by"] == f"GPU-1 of {NODE} failed: xid 79 (evict)"
    judged = ["musterbook.gpu.judged.v1"] * 4
    assert [one["type"] for one in only["evidence"]] == ["musterbook.node.share_ended.v1", *judged]
    metrics = (await cell.http.get("/metrics")).text
    assert 'muster_runs_failed_total{category="gpu"} 1.0' in metrics


async def test_a_held_job_is_resumed_over_http(cell: Cell) -> None:
    """Once; another job is told that there is nothing to resume."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    early = await cell.http.post(f"/v1/jobs/{job_id}:resume")
    assert (early.status_code, early.json()["code"]) == (409, "conflict")
    await cell.run(job_id)
    of: dict[str, Any] = {"at": CLOCK.now(), "team": TEAM, "job_id": job_id, "run_id": RunId(f"{job_id}-1")}
    held = JobRequeued(**of, cause=StopCause.NODE_LOST, not_before=CLOCK.now(), held=True)
    waiting = await cell.get(f"/v1/jobs/{job_id}", min_position=await cell.decide(held))
    assert (waiting["state"], waiting["hold_code"], waiting["attempts"][0]["held"]) == (
        "queued", "failed_too_often", True
    )  # fmt: skip

    async with asyncio.timeout(30), sent(cell, f"/v1/jobs/{job_id}/logs", follow=True) as events:
        told = [(name, document) async for _, name, document in events]
    assert told == [("end", {"state": "held"})], "whoever follows it is not kept waiting"

    first = (await cell.http.post(f"/v1/jobs/{job_id}:resume", json={"reason": "mended"})).json()
    again = (await cell.http.post(f"/v1/jobs/{job_id}:resume")).json()

    assert (first["repeated"], again) == (False, first | {"repeated": True})
    resumed = await cell.get(f"/v1/jobs/{job_id}", min_position=first["position"])
    assert resumed["hold_code"] == "not_evaluated"
