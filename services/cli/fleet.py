"""`muster nodes` and `muster queues`: what the cluster has, and who uses it."""

import json
from typing import Any, Final

from services.cli.options import ApiUrl, AsJson, connect
from services.cli.table import Column, ago, print_table

NODE_COLUMNS: Final = (
    Column("NODE"),
    Column("STATE"),
    Column("TYPE", drop=2),
    Column("GPUS", right=True),
    Column("USED", right=True),
    Column("FREE", right=True, drop=1),
    Column("OUT", right=True, drop=3),
    Column("JOINED", drop=5),
    Column("ADDRESS", drop=4),
)
QUEUE_COLUMNS: Final = (
    Column("TEAM"),
    Column("WAITING", right=True),
    Column("RUNNING", right=True),
    Column("ENDED", right=True, drop=1),
    Column("GPUS USED", right=True),
    Column("GPUS WAITED FOR", right=True, drop=2),
)


def nodes(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """The nodes with their GPUs: used, free, and out of the pool. --json: one document a line."""
    with connect(api_url) as client:
        found = client.get("/nodes", thing="nodes")["nodes"]
        if as_json:
            for node in found:
                print(json.dumps(node))
            return
        print_table(NODE_COLUMNS, [_node_row(node, ago(node.get("joined_at"), client.now)) for node in found])


def _node_row(node: dict[str, Any], joined: str) -> list[str]:
    return [
        *(str(node[name]) for name in ("node_id", "state", "gpu_type", "gpus_total", "gpus_used", "gpus_free", "gpus_out")),
        joined, str(node["address"]),
    ]  # fmt: skip


def queues(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """The teams: jobs that wait and run, GPUs in use. --json: one document a line."""
    with connect(api_url) as client:
        found = client.get("/queues", thing="queues")["queues"]
    if as_json:
        for queue in found:
            print(json.dumps(queue))
        return
    print_table(QUEUE_COLUMNS, [_queue_row(queue) for queue in found])


def _queue_row(queue: dict[str, Any]) -> list[str]:
    names = ("team", "jobs_waiting", "jobs_running", "jobs_ended", "gpus_used", "gpus_waiting")
    return [str(queue[name]) for name in names]
