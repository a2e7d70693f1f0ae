"""Nodes and queues over HTTP."""

from events.base import JobId
from tests.services.api.cell import NODE, Cell


async def test_nodes_and_queues_show_what_is_used(cell: Cell) -> None:
    """GPUs by state, jobs by team and state."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    await cell.submit("w", team="red", gpus=16)
    position = await cell.run(job_id)
    nodes = await cell.get("/v1/nodes", min_position=position)
    (node,) = nodes["nodes"]
    assert (node["node_id"], node["state"], node["gpu_type"], node["labels"]) == (NODE, "up", "h100", {"rack": "r1"})
    assert [node[f"gpus_{kind}"] for kind in ("total", "used", "free", "out")] == [2, 2, 0, 0]
    queues = {queue["team"]: queue for queue in (await cell.get("/v1/queues"))["queues"]}
    assert (queues["default"]["jobs_running"], queues["default"]["gpus_used"]) == (1, 2)
    assert (queues["red"]["jobs_waiting"], queues["red"]["gpus_waiting"], queues["red"]["jobs_ended"]) == (1, 16, 0)
