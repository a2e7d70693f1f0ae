"""Nodes, queues and promises over HTTP."""

from datetime import timedelta
from typing import Any

import msgspec

from events.ask import Entitled
from events.base import JobId, NodeEpoch, NodeId, Position, SlotMask, TeamId
from events.job import GpusEarmarked, JobAdmitted, NodeShare, PromiseCause, PromiseMoved, StartPromised
from events.operator import NodeCordoned
from events.queues import Bounds, Queue, QueuesSet, QueueStop
from projections.tables.queue_view import QueueRow
from runtime.serve_requests import Served, serving
from services.api.fleet import tree
from services.api.fleet_schemas import Queues
from tests.services.api.cell import CLOCK, NODE, SUBJECTS, Cell


async def test_nodes_and_queues_show_what_is_used(cell: Cell) -> None:
    """GPUs by state, jobs by team and state, in the tree of the document."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    await cell.submit("w", team="red", gpus=16)
    queues = (
        Queue(name=TeamId("lab"), bounds=(Bounds(limit=20),), stop=QueueStop.PAUSE),
        Queue(name=TeamId("red"), parent="lab", weight=3),
    )
    await cell.log.record([QueuesSet(at=CLOCK.now(), queues=queues)])
    await cell.log.record([NodeCordoned(at=CLOCK.now(), by="api:ops", node_id=NODE, reason="fan")])
    position = await cell.run(job_id)
    nodes = await cell.get("/v1/nodes", min_position=position)
    (node,) = nodes["nodes"]
    assert (node["node_id"], node["state"], node["gpu_type"], node["labels"]) == (NODE, "up", "h100", {"rack": "r1"})
    assert [node[f"gpus_{kind}"] for kind in ("total", "used", "free", "out", "earmarked")] == [2, 2, 0, 0, 0]
    assert (node["rack"], node["cordoned"], node["cordoned_by"], node["cordon_reason"]) == (
        "r1",
        True,
        "api:ops",
        "fan",
    )
    answer = await cell.get("/v1/queues")
    default, lab, red = answer["queues"]
    assert [queue.depth for queue in Queues.model_validate(answer).queues] == [0, 0, 1]
    assert (default["jobs_running"], default["gpus_used_by_type"], default["listed"]) == (1, {"h100": 2}, False)
    assert (lab["bounds"], lab["jobs_waiting"], lab["whole"]["gpus_waiting"]) == ([{"limit": 20}], 0, 16)
    assert (red["jobs_waiting"], red["gpus_waiting"], red["jobs_ended"], red["weight"]) == (1, 16, 0, 3)
    assert (red["depth"], red["stop"], red["stopped"]) == (1, "none", "pause")


async def test_queues_say_what_they_may_claim_if_a_control_plane_does(cell: Cell) -> None:
    """With all below them, as it answers; null where none answers, or one has too much to do."""

    async def say(_subject: str, _payload: bytes) -> bytes:
        return msgspec.json.encode(Entitled(position=Position(7), queues={"lab": {"h100": 2}}))

    async def busy(_subject: str, _payload: bytes) -> bytes:
        return b""

    queues = (Queue(name=TeamId("lab")), Queue(name=TeamId("red"), parent="lab"))
    position = await cell.log.record([QueuesSet(at=CLOCK.now(), queues=queues)])
    told = []
    for answer in (None, busy, say):
        served = [Served(SUBJECTS.entitled, "entitled", answer, b"")] if answer is not None else []
        async with serving(cell.system, *served):
            listed = (await cell.get("/v1/queues", min_position=position))["queues"]
        told.append([queue["entitled"] for queue in listed])
    assert told == [[None, None], [None, None], [{"h100": 2}, {}]]


async def test_promises_and_what_is_set_aside_are_shown(cell: Cell) -> None:
    """In the list with its slips, with the job, with the node, and as metrics."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    of: dict[str, Any] = {"at": CLOCK.now(), "team": TeamId("default"), "job_id": job_id}
    shares = (NodeShare(NodeId(NODE), NodeEpoch(cell.epoch), SlotMask(3)),)
    first = CLOCK.now() + timedelta(hours=1)
    moved = PromiseMoved(**of, shares=shares, start=first + timedelta(minutes=5), cause=PromiseCause.OVERRUN)
    position = await cell.decide(
        JobAdmitted(**of, borrowing=True),
        StartPromised(**of, shares=shares, start=first),
        moved,
        GpusEarmarked(**of, shares=shares),
    )
    answer = await cell.get("/v1/promises", min_position=position, job=job_id)
    (promise,) = answer["promises"]
    assert (promise["outcome"], promise["slip_s"], promise["causes"]) == ("open", 300.0, {"overrun": 1})
    assert (answer["outcomes"]["open"], answer["slips"], answer["hit_rate"], answer["next_cursor"]) == (
        1, {"overrun": 1}, None, None,
    )  # fmt: skip
    job = await cell.get(f"/v1/jobs/{job_id}")
    assert (job["promised"], job["borrowing"], job["earmarked"], job["evictions"]) == (True, True, True, 0)
    (node,) = (await cell.get("/v1/nodes"))["nodes"]
    assert (node["gpus_earmarked"], node["earmarked_for"], node["gpus_free"]) == (2, [job_id], 2)
    metrics = (await cell.http.get("/metrics")).text
    for line in (
        "muster_promises_total 1.0",
        'muster_promise_slips_total{cause="overrun"} 1.0',
        "muster_promise_hit_rate NaN",
        "muster_gpus_earmarked 2.0",
        'muster_evictions_total{kind="preempted"} 0.0',
        'muster_queue_gpus_waiting{queue="default"} 2.0',
        'muster_queue_jobs{queue="default",state="admitted"} 1.0',
    ):
        assert line in metrics


def test_a_tree_needs_no_order_and_no_parent() -> None:
    """Siblings by name, each before those below it; one whose parent is not there stands at the root."""
    parents = {"b": "", "a": "b", "c": "gone", "d": "a"}
    rows = [QueueRow(TeamId(name), parent=parent, gpus_held=1) for name, parent in parents.items()]
    shown = [(queue.team, queue.depth, queue.whole.gpus_used) for queue in tree(rows, None)]
    assert shown == [("b", 0, 3), ("a", 1, 2), ("d", 2, 1), ("c", 0, 1)]
