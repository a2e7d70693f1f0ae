"""Events in few words."""

from typing import Any

import pytest

from services.cli.detail import detail

SHARES = [["node-1", 3, 255], ["node-2", 4, 255]]
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("job.placed", {"run_id": "jx-1", "shares": SHARES}, "run_id=jx-1 on node-1, node-2"),
    ("job.admitted", {"borrowing": True}, "beyond what its team is entitled to now"),
    ("job.admitted", {}, ""),
    (
        "job.gpus_earmarked",
        {"shares": SHARES, "victims": ["ja-1", "jb-2"]},
        "16 GPUs set aside on node-1, node-2; stopping ja-1, jb-2",
    ),
    ("job.gpus_earmarked", {"shares": [["n", 1, 1]]}, "1 GPU set aside on n"),
    (
        "job.gpus_earmarked",
        {"shares": [["n", 1, 1]], "victims": ["j-1"], "moved": True},
        "1 GPU set aside on n; moving j-1",
    ),
    (
        "job.gpus_earmarked",
        {"shares": [[f"n{n}", 1, 1] for n in range(250)]},
        "250 GPUs set aside on n0, n1, n2, n3, n4, n5, n6, n7 and 242 more",
    ),
    (
        "job.start_promised",
        {"shares": SHARES, "start": "2026-01-01T10:00:00Z"},
        "16 GPUs on node-1, node-2; start by 2026-01-01 10:00:00 UTC",
    ),
    ("job.start_promised", {"shares": SHARES}, "16 GPUs on node-1, node-2; no time can be said yet"),
    (
        "job.promise_moved",
        {"shares": SHARES[:1], "start": "2026-01-01T10:00:00Z", "cause": "overrun"},
        "overrun: 8 GPUs on node-1; start by 2026-01-01 10:00:00 UTC",
    ),
    ("job.promise_dropped", {"cause": "node"}, "cause=node"),
    (
        "job.consolidation_proposed",
        {"shares": SHARES, "moves": [{"run_id": "ja-1", "shares": SHARES}]},
        "16 GPUs on node-1, node-2 would be free if these moved: ja-1",
    ),
    ("job.run_stopping", {"run_id": "jx-1", "cause": "preempted", "node_id": ""}, "run_id=jx-1 cause=preempted"),
    ("node.checkpoint_saved", {"run_id": "jx-1", "number": 40}, "checkpoint 40 of jx-1 is safe"),
    ("node.described", {"labels": {"rack": "r1"}, "taints": ["old"]}, "rack=r1; taints old"),
    ("node.cordoned", {"node_id": "n1", "reason": "fan"}, "node_id=n1 reason=fan"),
    (
        "gpu.judged",
        {
            "node_id": "n1",
            "gpu_uuid": "GPU-1",
            "signal": "xid",
            "code": 95,
            "action": "reset",
            "rule": "xid 95",
            "held_back": False,
        },
        "node_id=n1 gpu_uuid=GPU-1 signal=xid code=95 action=reset rule=xid 95",
    ),
    ("queues.set", {"queues": [{}, {}]}, "2 queues"),
]


@pytest.mark.parametrize(("kind", "data", "said"), CASES)
def test_an_event_is_told_in_few_words(kind: str, data: dict[str, Any], said: str) -> None:
    """What was decided, and where; long lists are cut with their length."""
    assert detail({"type": f"musterbook.{kind}.v1", "data": data}) == said


def test_who_asked_is_said_too() -> None:
    """Also where there is nothing else to say."""
    event = {"type": "musterbook.queues.set.v1", "data": {"queues": []}, "by": "api:ops"}
    assert detail(event) == "0 queues by api:ops"
    assert detail({"type": "musterbook.job.admitted.v1", "data": {}, "by": "x"}) == "by x"
