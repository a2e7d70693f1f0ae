"""`muster jobs`, `job`, `wait`, `cancel` and `resume`: what became of jobs, ending them, and letting them try again."""

import json
import shlex
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from services.cli.attempts import print_attempts
from services.cli.bills import money_line, print_bills
from services.cli.client import Client
from services.cli.detail import detail, short_type
from services.cli.ended import TERMINAL, code_text, exit_code_of, say_end, wait_for
from services.cli.failure import EXIT_CODES, Failure, say
from services.cli.options import ApiUrl, AsJson, JobIdArgument, connect, job_path
from services.cli.place import shown
from services.cli.table import Column, ago, duration, parse_time, print_table

PAGE_MAX: Final = 500
TIMELINE: Final = (  # a long detail wraps: exit codes and causes are what people look for there
    Column("AT", right=True),
    Column("POSITION", right=True, drop=1),
    Column("EVENT"),
    Column("DETAIL"),
)
COLUMNS: Final = (
    Column("JOB"),
    Column("NAME", drop=2),
    Column("TEAM", drop=4),
    Column("STATE"),
    Column("GPUS", right=True, drop=1),
    Column("NODES", right=True, drop=7),
    Column("SUBMITTED", drop=5),
    Column("TIME", right=True, drop=6),
    Column("INFO", drop=3),
)


def jobs(
    *,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only jobs in this state.")] = None,
    team: Annotated[str | None, typer.Option("--team", metavar="NAME", help="Only this team's jobs.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many; else the newest 50.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 50,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """The jobs, newest first, ended ones too. --json: one document a line."""
    with connect(api_url) as client:
        found, more = _listed(client, {"state": state, "team": team}, limit=None if everything else limit)
        if as_json:
            for job in found:
                print(json.dumps(job))
        else:
            print_table(COLUMNS, [row(job, client.now) for job in found])
        if more:
            say(f"there are more than these {limit}: --limit N, --all")


def _listed(client: Client, filters: dict[str, Any], *, limit: int | None) -> tuple[list[dict[str, Any]], bool]:
    """The jobs that fit, up to `limit`, and whether there are more."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(found))
        answer = client.get("/jobs", {**filters, "limit": page, "cursor": cursor}, thing="jobs")
        found += answer["jobs"]
        cursor = answer.get("next_cursor")
        if not cursor or (limit is not None and len(found) >= limit):
            return found, bool(cursor)


def row(job: dict[str, Any], now: datetime) -> list[str]:
    """The cells of `COLUMNS`."""
    return [
        str(job["job_id"]),
        str(job["name"]),
        str(job["team"]),
        str(job["state"]),
        str(job["gpus"]),
        str(job.get("nodes") or ""),
        ago(job.get("submitted_at"), now),
        _running_time(job, now),
        _info(job, now),
    ]


def _running_time(job: dict[str, Any], now: datetime) -> str:
    if job["state"] in {"queued", "admitted"}:
        return ""  # what it shows is of the run before
    began, ended = parse_time(job.get("started_at")), parse_time(job.get("ended_at"))
    return duration(((ended or now) - began).total_seconds()) if began else ""


def _info(job: dict[str, Any], now: datetime) -> str:
    """What matters most now: why it waits, or how it ended."""
    state = str(job["state"])
    if state in TERMINAL:
        code = int(job.get("exit_code") or 0)
        if state == "cancelled":
            return str(job.get("cancel_reason") or "")
        cause = str(job.get("cause") or "").replace("_", " ")
        return code_text(code, str(job.get("category") or "")) or (cause if state != "succeeded" else "")
    if state in {"placed", "running", "stopping"}:
        return ", ".join(part for part in _running_info(job) if part)
    return str(job.get("hold_code") or "").replace("_", " ") + _promise(job, now)


def _running_info(job: dict[str, Any]) -> tuple[str, ...]:
    placed, attempt = job.get("gpus_placed"), int(job.get("attempt") or 1)
    cause = str(job.get("cause") or "").replace("_", " ") if job["state"] == "stopping" else ""
    return (
        cause,
        f"{placed} GPUs" if placed not in {None, job["gpus"]} else "",
        "borrows" if job.get("borrowing") else "",
        f"attempt {attempt}" if attempt > 1 else "",
    )


def _promise(job: dict[str, Any], now: datetime) -> str:
    """`, start in 3m 20s`; empty where nothing was promised, or no time can be said."""
    start = parse_time(job.get("promised_start"))
    return f", start in {duration((start - now).total_seconds())}" if start else ""


def job(job_id: JobIdArgument, *, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """A job, what its runs cost, and its timeline from the event log. --json: one document, the job with `timeline`."""
    with connect(api_url) as client:
        found = client.get(job_path(job_id), thing=job_id)
        timeline = timeline_of(client, job_id)
        if as_json:
            print(json.dumps({**found, "timeline": timeline}))
            return
        for name, value in _summary(found, client.now):
            print(f"{name:<12}{value}")
        print()
        if found.get("attempts"):
            print_attempts(found["attempts"], client.now)
            print()
        if found.get("bills"):
            print_bills(found["bills"])
            print()
        print_timeline(timeline)


def timeline_of(client: Client, job_id: str) -> list[dict[str, Any]]:
    """Every event of a job, in order."""
    events: list[dict[str, Any]] = []
    while True:
        after = events[-1]["position"] if events else None
        page = client.get(job_path(job_id, "timeline"), {"after": after}, thing=job_id)
        events += page["events"]
        if not page["truncated"] or not page["events"]:
            return events


def _summary(job: dict[str, Any], now: datetime) -> list[tuple[str, str]]:
    """Names and values of the lines at the top, those without a value left out."""
    command = (job.get("spec") or {}).get("command") or ()
    info = _info(job, now)
    lines = [
        ("job", str(job["job_id"])),
        ("name", str(job["name"])),
        ("team", str(job["team"])),
        ("state", f"{job['state']} ({info})" if info else str(job["state"])),
        ("gpus", _gpus(job)),
        (
            "within",
            f"{job['within']}{'' if job.get('within_required') else ', if there is room'}" if job.get("within") else "",
        ),
        ("command", shlex.join(map(str, command))),
        ("nodes", ", ".join(map(str, job.get("node_ids") or ()))),
        ("submitted", ago(job.get("submitted_at"), now)),
        ("ran", _running_time(job, now)),
        ("limit", duration(job["max_runtime_s"]) if job.get("max_runtime_s") else ""),
        ("account", money_line(job)),
        ("stopped for", f"{job['evicted_for']}, {job['evictions']} so far" if job.get("evictions") else ""),
    ]
    return [(name, value) for name, value in lines if value]


def _gpus(job: dict[str, Any]) -> str:
    """`8`, or of an elastic gang what it asks for and what it got."""
    if not job.get("min_gpus"):
        return str(job["gpus"])
    placed = f", got {job['gpus_placed']}" if job.get("gpus_placed") else ""
    return f"{job['min_gpus']} to {job['gpus']}{placed}"


def print_timeline(events: list[dict[str, Any]]) -> None:
    """The events are on stdout, one a line, each with its time since the first."""
    first = parse_time(events[0]["at"]) if events else None
    rows = []
    for event in events:
        at = parse_time(event["at"])
        assert first is not None
        assert at is not None
        rows.append(
            [f"+{(at - first).total_seconds():.3f}s", shown(event["position"]), short_type(event), detail(event)]
        )
    print_table(TIMELINE, rows)


def wait(
    job_id: JobIdArgument,
    *,
    timeout: Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="Longest wait.")] = None,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Wait until a job has ended and exit as it did. --json: its document, once it has."""
    with connect(api_url) as client:
        ended = wait_for(client, job_id, timeout_s=timeout, tell=not as_json)
    if as_json:
        print(json.dumps(ended))
    else:
        say_end(ended)
    raise typer.Exit(exit_code_of(ended))


wait.__doc__ = f"{wait.__doc__}\n\n{EXIT_CODES}"


def cancel(
    job_id: JobIdArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept in the log.")] = "",
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """End a job: its processes are stopped and its GPUs returned. Without effect on one that has ended."""
    with connect(api_url) as client:
        answer = client.post(f"{job_path(job_id)}:cancel", {"reason": reason}, thing=job_id)
        try:
            state = str(client.get(job_path(answer["job_id"]), thing=job_id)["state"])
        except Failure:
            state = ""  # tables that are away keep nobody from cancelling
    if as_json:
        print(json.dumps(answer))
    if state in TERMINAL:
        say(f"{job_id}: had already ended ({state.replace('_', ' ')})")
    else:
        say(f"{job_id}: will be stopped; muster wait {job_id} returns when it has")


def resume(
    job_id: JobIdArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept in the log.")] = "",
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Let a job try again that failures of nodes, GPUs or the control plane have ended too often, with all its retries."""
    with connect(api_url) as client:
        answer = client.post(f"{job_path(job_id)}:resume", {"reason": reason}, thing=job_id)
        with suppress(Failure):  # whoever looks next finds it resumed; tables that are away keep nobody from resuming
            client.get(job_path(answer["job_id"]), {"min_position": answer["position"]}, thing=job_id)
    if as_json:
        print(json.dumps(answer))
    else:
        say(f"{job_id}: {'was resumed already' if answer['repeated'] else 'waits for GPUs again'}; muster why {job_id}")
