"""The attempts of a job in words: where each ran, what ended it, and what was lost."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from services.cli.table import counted, duration, parse_time

NODES_MAX: Final = 8  # that a line names
SHOWN_MAX: Final = 20  # attempts; the last ones


def print_attempts(attempts: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """One a line on stdout, the first one first; of many the last."""
    if len(attempts) > SHOWN_MAX:
        print(f"the last {SHOWN_MAX} of {len(attempts)} attempts:")
    for attempt in attempts[-SHOWN_MAX:]:
        print(line(attempt, now))


def line(attempt: Mapping[str, Any], now: datetime) -> str:
    """`attempt 1: 8 GPUs on n1, n2; ended by node: n2 was lost after 92 s of silence; 14m 00s since checkpoint 7 lost`."""
    nodes = list(map(str, attempt.get("node_ids") or ()))
    more = f" and {len(nodes) - NODES_MAX} more" if len(nodes) > NODES_MAX else ""
    where = f"{counted(int(attempt['gpus']), 'GPU')} on {', '.join(nodes[:NODES_MAX])}{more}"
    parts = [where, _end(attempt, now), _lost(attempt), "held" if attempt.get("held") else ""]
    return f"attempt {attempt['attempt']}: " + "; ".join(part for part in parts if part)


def _end(attempt: Mapping[str, Any], now: datetime) -> str:
    state = str(attempt["state"])
    if attempt.get("ended_by"):
        category = str(attempt.get("category") or "").replace("_", " ")
        return f"ended by {category}: {attempt['ended_by']}" if category else f"ended: {attempt['ended_by']}"
    began, ended = parse_time(attempt.get("started_at")), parse_time(attempt.get("ended_at"))
    if began is None or (ended is None and state != "running"):
        return state
    verb = "ran" if ended else "for"
    took = duration(((ended or now) - began).total_seconds())
    return f"{state}, {verb} {took}" if ended else f"{state} {verb} {took}"


def _lost(attempt: Mapping[str, Any]) -> str:
    """How long all of it worked for nothing; empty where that is less than a second, or it never began."""
    seconds = float(attempt.get("lost_gpu_s") or 0) / max(1, int(attempt["gpus"]))
    if seconds < 1 or not attempt.get("ended_by") or not attempt.get("started_at"):
        return ""
    since = f"checkpoint {attempt['checkpoint']}" if attempt.get("checkpoint") is not None else "its start"
    return f"{duration(seconds)} since {since} lost"
