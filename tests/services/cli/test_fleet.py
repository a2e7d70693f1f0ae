"""Nodes, queues and promises, as people see them."""

import json
from typing import Any

from typer.testing import CliRunner

from services.cli.app import app
from services.cli.fleet import NODE_COLUMNS, bound, fared
from tests.services.cli.network import Network

NODE = {
    "node_id": "node-1", "state": "up", "gpu_type": "h100", "gpus_total": 8, "gpus_used": 3, "gpus_free": 4,
    "gpus_out": 1, "gpus_sick": 1, "joined_at": "2026-01-01T00:00:00Z", "address": "10.0.0.1", "rack": "r1", "gpus_earmarked": 2,
    "taints": ["old", "hot"], "cordoned": True, "cordoned_at": "2026-01-01T00:00:00Z", "cordoned_by": "api:ops",
    "cordon_reason": "fan", "standing": "cordoned",
}  # fmt: skip


def queue(team: str, depth: int, **more: Any) -> dict[str, Any]:
    """A queue as the API gives it."""
    whole = {"jobs_waiting": 1, "jobs_running": 2, "gpus_used": 24, "gpus_borrowed": 8, "gpus_waiting": 16}
    return {
        "team": team, "depth": depth, "weight": 5, "bounds": [], "jobs_ended": 3, "stopped": "none", "whole": whole,
    } | more  # fmt: skip


def test_nodes_are_listed(network: Network) -> None:
    """One line each, every column when piped; as JSON the documents as they came."""
    network.answers.append((200, {"nodes": [NODE], "position": 1}))
    done = CliRunner().invoke(app, ["nodes", "--api-url", network.url])
    header, line = done.stdout.splitlines()
    assert header.split() == [column.title for column in NODE_COLUMNS]
    assert line.split()[:10] == ["node-1", "cordoned", "h100", "8", "3", "4", "1", "1", "2", "r1"]
    assert line.endswith("old,hot  " + line.split("old,hot  ")[1])
    assert line.endswith(" ago by api:ops: fan")
    done = CliRunner().invoke(app, ["nodes", "--json", "--api-url", network.url])
    assert json.loads(done.stdout) == NODE


def test_queues_are_a_tree(network: Network) -> None:
    """Indented below what they belong to, with bounds and claims by type; a stop of one above it counts."""
    bounds = [{"gpu_type": "h100", "floor": 32, "limit": 64}, {"limit": 70}]
    tree = [
        queue("lab", 0, bounds=bounds, entitled={"h100": 32, "a100": 8}),
        queue("red", 1, stopped="pause", entitled={"h100": 40}),
        queue("idle", 0, entitled={}),
        queue("unknown", 0, entitled=None),
    ]
    network.answers.append((200, {"queues": tree, "position": 1}))
    out = CliRunner().invoke(app, ["queues", "--api-url", network.url]).stdout
    assert out.splitlines() == [
        "QUEUE    WEIGHT    FLOOR       LIMIT        ENTITLED  USED  BORROWED  WANTED  RUNNING  WAITING  ENDED  STOP",
        "lab           5  h100:32  h100:64 70  a100:8 h100:32    24         8      16        2        1      3",
        "  red         5                                   40    24         8      16        2        1      3  paused",
        "idle          5                                    0    24         8      16        2        1      3",
        "unknown       5                                         24         8      16        2        1      3",
    ]


def test_a_limit_of_nothing_is_shown_and_none_is_not() -> None:
    """Zero is a bound; what is missing is none."""
    assert bound([{"limit": 0}, {"gpu_type": "a100", "limit": None}], "limit") == "0"


def test_promises_say_how_far_they_slipped_and_how_all_fared(network: Network) -> None:
    """The list on stdout, the sum on stderr, if it is of all that are listed."""
    promise = {
        "job_id": "jx", "team": "red", "gpus": 80, "outcome": "late", "promised_at": "2026-01-01T00:00:00Z",
        "first_start": "2026-01-01T10:00:00Z", "start": None, "slip_s": 200.0, "moves": 1, "cause": "overrun",
    }  # fmt: skip
    outcomes = {"open": 0, "kept": 3, "late": 1, "untimed": 0, "dropped": 2}
    answer = {"promises": [promise], "outcomes": outcomes, "slips": {"overrun": 4}, "hit_rate": 0.75, "position": 1}
    network.answers.extend([(200, answer), (200, answer)])
    done = CliRunner().invoke(app, ["promises", "--api-url", network.url])
    (_, line) = done.stdout.splitlines()
    assert line.split()[:4] == ["jx", "red", "80", "late"]
    assert line.endswith("2026-01-01 10:00:00  +3m 20s      1  overrun")
    assert done.stderr == "muster: 6 promises: 3 kept, 1 late, 2 dropped; hit rate 75.0 %; slips: overrun 4\n"
    assert fared({"outcomes": {"open": 0}, "slips": {}, "hit_rate": None}) == "0 promises"
    done = CliRunner().invoke(app, ["promises", "--job", "jx", "--api-url", network.url])
    assert (len(done.stdout.splitlines()), done.stderr) == (2, "")
    assert [asked[0] for asked in network.asked] == ["/v1/promises?limit=50", "/v1/promises?job=jx&limit=50"]
