"""A node in words: its state, why it takes nothing new, and what it waits for."""

from datetime import UTC, datetime
from typing import Any

from services.cli.table import ago, counted, parse_time

Document = dict[str, Any]  # a node as the API gives it


def state_of(node: Document) -> str:
    """`up`, `draining`, `lost, drained`."""
    state, standing = str(node["state"]), str(node.get("standing") or "open")
    if standing == "open":
        return state
    return standing if state == "up" or standing == "retired" else f"{state}, {standing}"


def why_of(node: Document, now: datetime) -> str:
    """Why nothing new comes, since when, by whom, and what is waited for; of one that takes work, the next maintenance."""
    if node.get("retired_at"):
        return f"retired {ago(node['retired_at'], now)}"
    told = [drained_by(node, now)] if node.get("drain") else []
    if node.get("cordoned"):
        told.append(
            f"cordoned {ago(node.get('cordoned_at'), now)}{_by(node.get('cordoned_by'), node.get('cordon_reason'))}"
        )
    if not told and node.get("windows"):
        told.append(window_in_words(node["windows"][0], now))
    return "; ".join(told)


def drained_by(node: Document, now: datetime) -> str:
    """`3 runs, 24 GPUs, until 14:30 UTC; 3m 20s ago by api:ada: fan`."""
    drain = node["drain"]
    since = f"{ago(drain['since'], now)}{_by(drain.get('by'), drain.get('reason'), drain.get('cause'))}"
    parts = [waits_for(node, now), since]
    if drain.get("window"):
        parts.append(f"maintenance {drain['window']}")
    return "; ".join(part for part in parts if part)


def waits_for(node: Document, now: datetime) -> str:
    """What holds a node that is drained, and until when; empty where nothing does."""
    drain = node["drain"]
    if drain.get("drained_at"):
        return ""
    runs, gpus = int(node.get("runs") or 0), int(node.get("gpus_used") or 0)
    held = f"{counted(runs, 'run')}, {counted(gpus, 'GPU')}" if runs else _left(node)
    deadline = parse_time(drain.get("deadline"))
    if deadline is None or not runs:
        return held
    return f"{held}, until {clock(deadline, now)}" if deadline > now else f"{held}, told to stop"


def _left(node: Document) -> str:
    """What holds a node on which no run is."""
    unclean = int(node.get("gpus_out") or 0) - int(node.get("gpus_sick") or 0)
    return "no run; its GPUs are being cleaned" if unclean > 0 else "nothing"


def window_in_words(window: Document, now: datetime) -> str:
    """`maintenance fans 14:00 to 16:00 UTC: new fans`."""
    starts, ends = parse_time(window["starts"]), parse_time(window["ends"])
    assert starts is not None
    assert ends is not None
    reason = f": {window['reason']}" if window.get("reason") else ""
    return f"maintenance {window['window']} {clock(starts, now, zone='')} to {clock(ends, now)}{reason}"


def clock(moment: datetime, now: datetime, *, zone: str = " UTC") -> str:
    """A moment, with its date where that is another one than now."""
    at = moment.astimezone(UTC)
    return f"{at:%H:%M}{zone}" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d %H:%M}{zone}"


def _by(who: Any, reason: Any, cause: Any = "") -> str:  # noqa: ANN401  # values of a JSON document
    """` by api:ada: fan`; what the control plane does by itself is told by its cause."""
    named = f" by {who}" if who else f" ({str(cause).replace('_', ' ')})" if cause else ""
    return f"{named}: {reason}" if reason else named
