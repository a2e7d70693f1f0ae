"""The GPUs of a node in a table: whose each is, and what health says of it."""

from datetime import datetime
from typing import Any, Final

from services.cli.table import Column, ago, print_table

COLUMNS: Final = (
    Column("GPU", right=True),
    Column("UUID", drop=3),
    Column("STATE"),
    Column("RUN", drop=2),
    Column("HEALTH"),
    Column("RETURNED BY", drop=1),
    Column("LAST SIGN", drop=4),
)


def print_gpus(node: dict[str, Any], now: datetime) -> None:
    """A line each, without those that the node has no more."""
    rows = [_row(gpu, now) for gpu in node.get("gpus") or () if gpu["state"] != "absent"]
    if rows:
        print()
        print_table(COLUMNS, rows)


def what_returns(node: dict[str, Any]) -> str:
    """What to do about GPUs that are out, in a sentence; empty where none waits for a person."""
    out = [gpu for gpu in node.get("gpus") or () if gpu["health"] and gpu["state"] != "absent"]
    slots = [gpu["slot"] for gpu in out if "reset" not in gpu["health"]["returns_by"]]
    words = f"muster node return {node['node_id']} {' '.join(f'--gpu {slot}' for slot in slots)}"
    return f"what is out waits for somebody to look; once it is sound: {words}" if slots else ""


def _row(gpu: dict[str, Any], now: datetime) -> list[str]:
    health = gpu["health"]
    told = f"{health['action']}: {health['rule']}, {ago(health['since'], now)}" if health else _in_use(gpu["judged"])
    return [
        str(gpu["slot"]),
        str(gpu["uuid"]),
        "out" if health and gpu["state"] == "free" else str(gpu["state"]),
        str(gpu["run_id"]),
        told,
        ", ".join(health["returns_by"]) if health else "",
        _judged(gpu["judged"], now),
    ]


def _in_use(judged: dict[str, Any] | None) -> str:
    """Of a GPU that may be given away: whether it is only because the breaker keeps it in use."""
    return f"held back: {judged['rule']}" if judged is not None and judged["held_back"] else "sound"


def _judged(judged: dict[str, Any] | None, now: datetime) -> str:
    """`xid 63: log, 3m 20s ago`; empty where it was never judged."""
    if judged is None:
        return ""
    held_back = ", held back" if judged["held_back"] else ""
    return f"{judged['rule']}: {judged['action']}{held_back}, {ago(judged['at'], now)}"
