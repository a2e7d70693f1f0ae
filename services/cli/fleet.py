"""`muster nodes`, `queues` and `promises`: what the cluster has, who uses it, and who was promised what."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from services.cli.failure import say
from services.cli.node_words import state_of, why_of
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.table import Column, ago, duration, parse_time, print_table

NODE_COLUMNS: Final = (
    Column("NODE"),
    Column("STATE"),
    Column("TYPE", drop=4),
    Column("GPUS", right=True),
    Column("USED", right=True),
    Column("FREE", right=True, drop=1),
    Column("OUT", right=True, drop=5),
    Column("SICK", right=True, drop=2),
    Column("EARMARKED", right=True, drop=3),
    Column("RACK", drop=2),
    Column("JOINED", drop=7),
    Column("AGENT", drop=6),
    Column("ADDRESS", drop=8),
    Column("TAINTS", drop=6),
    Column("WHY", drop=1, wraps=True),
)
QUEUE_COLUMNS: Final = (
    Column("QUEUE"),
    Column("WEIGHT", right=True, drop=4),
    Column("FLOOR", right=True, drop=2),
    Column("LIMIT", right=True, drop=2),
    Column("ENTITLED", right=True, drop=1),
    Column("USED", right=True),
    Column("BORROWED", right=True, drop=3),
    Column("WANTED", right=True),
    Column("RUNNING", right=True, drop=5),
    Column("WAITING", right=True, drop=1),
    Column("ENDED", right=True, drop=6),
    Column("STOP", drop=1),
)
PROMISE_COLUMNS: Final = (
    Column("JOB"),
    Column("TEAM", drop=4),
    Column("GPUS", right=True, drop=3),
    Column("OUTCOME"),
    Column("PROMISED", drop=5),
    Column("START"),
    Column("SLIP", right=True),
    Column("MOVES", right=True, drop=2),
    Column("CAUSE", drop=1),
)
PROMISES: Final = 50
STOPPED: Final = {"none": "", "pause": "paused", "hold": "on hold"}


def nodes(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """The nodes with their GPUs: used, free, out of the pool, set aside; and why some take nothing new.

    STATE: *up*, *suspect* or *lost*; of one that takes nothing new *cordoned*, *draining* (something holds GPUs there still),
    *drained*, *maintenance* (likewise, while it is on) or *retired*. --json: one document a line.
    """
    with connect(api_url) as client:
        found = client.get("/nodes", thing="nodes")["nodes"]
        if as_json:
            for node in found:
                print(json.dumps(node))
            return
        print_table(NODE_COLUMNS, [node_row(node, client.now) for node in found])


def node_row(node: dict[str, Any], now: datetime) -> list[str]:
    """A line of the table."""
    return [
        str(node["node_id"]),
        state_of(node),
        *(str(node[name]) for name in ("gpu_type", "gpus_total", "gpus_used", "gpus_free", "gpus_out")),
        str(node.get("gpus_sick") or ""),
        str(node.get("gpus_earmarked") or ""),
        str(node.get("rack") or ""),
        ago(node.get("joined_at"), now),
        str(node.get("agent_version") or ""),
        str(node["address"]),
        ",".join(node.get("taints") or ()),
        why_of(node, now),
    ]


def queues(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """The queues as a tree, with all that is below each: GPUs used, borrowed and wanted, jobs that run and wait.

    ENTITLED are the GPUs that it may claim now: of all, never more than it uses and wants. FLOOR and LIMIT are those of the
    document, over all types or by type: `muster queue show` has the rest of it. --json: one document a line.
    """
    with connect(api_url) as client:
        found = client.get("/queues", thing="queues")["queues"]
    if as_json:
        for queue in found:
            print(json.dumps(queue))
        return
    print_table(QUEUE_COLUMNS, [_queue_row(queue) for queue in found])


def _queue_row(queue: dict[str, Any]) -> list[str]:
    whole = queue["whole"]
    return [
        "  " * int(queue["depth"]) + str(queue["team"]),
        str(queue["weight"]),
        bound(queue["bounds"], "floor"),
        bound(queue["bounds"], "limit"),
        _entitled(queue.get("entitled")),
        str(whole["gpus_used"]),
        str(whole["gpus_borrowed"] or ""),
        str(whole["gpus_waiting"]),
        str(whole["jobs_running"]),
        str(whole["jobs_waiting"]),
        str(queue["jobs_ended"]),
        STOPPED.get(str(queue["stopped"]), str(queue["stopped"])),
    ]


def _entitled(by_type: Mapping[str, int] | None) -> str:
    """`40`, or of several types `a100:8 h100:32`; empty where nobody could say."""
    if by_type is None:
        return ""
    several = len(by_type) > 1
    return " ".join(f"{t}:{gpus}" if several else str(gpus) for t, gpus in sorted(by_type.items())) or "0"


def bound(bounds: list[Mapping[str, Any]], name: str) -> str:
    """`40`, or `h100:32 a100:8`; empty where there is no such bound."""
    found = [(str(one.get("gpu_type") or ""), one[name]) for one in bounds if one.get(name) is not None]
    return " ".join(f"{gpu_type}:{number}" if gpu_type else str(number) for gpu_type, number in found)


def promises(
    *,
    job_id: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only of this job.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = PROMISES,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """What gangs were promised, newest first: the start that was said first, how far it slipped, and what became of it.

    How often promises were kept, of all jobs, is on stderr. --json: one document.
    """
    with connect(api_url) as client:
        answer = client.get("/promises", {"job": job_id, "limit": limit}, thing="promises")
        if as_json:
            print(json.dumps(answer))
            return
        print_table(PROMISE_COLUMNS, [_promise_row(promise, client.now) for promise in answer["promises"]])
    if job_id is None:
        say(fared(answer))  # of all promises, not of one job's


def _promise_row(promise: dict[str, Any], now: datetime) -> list[str]:
    start, slip = parse_time(promise.get("first_start")), promise.get("slip_s")
    return [
        str(promise["job_id"]),
        str(promise["team"]),
        str(promise["gpus"]),
        str(promise["outcome"]),
        ago(promise.get("promised_at"), now),
        f"{start:%Y-%m-%d %H:%M:%S}" if start else "none yet",
        f"{'-' if slip < 0 else '+'}{duration(abs(slip))}" if slip is not None else "",
        str(promise["moves"] or ""),
        str(promise.get("cause") or "").replace("_", " "),
    ]


def fared(answer: dict[str, Any]) -> str:
    """`12 promises: 9 kept, 1 late, …; hit rate 90.0 %; slips: overrun 3`."""
    outcomes, slips, rate = answer["outcomes"], answer["slips"], answer["hit_rate"]
    parts = [", ".join(f"{number} {outcome}" for outcome, number in outcomes.items() if number)]
    if rate is not None:
        parts.append(f"hit rate {100 * rate:.1f} %")
    if slips:
        parts.append("slips: " + ", ".join(f"{cause} {number}" for cause, number in sorted(slips.items())))
    made = sum(outcomes.values())
    return f"{made} promise{'s' if made != 1 else ''}" + (
        f": {'; '.join(part for part in parts if part)}" if made else ""
    )
