"""What a job costs, in few words: who pays, what is set aside or will be, and what became of that for each of its runs."""

from typing import Any, Final

from services.cli.table import Column, credits_of, credits_told, duration, parse_time, print_table

EVIDENCE_MAX: Final = 2  # ids that a line names; of the rest, how many
COLUMNS: Final = (
    Column("RUN"),
    Column("RESERVED", right=True),
    Column("CHARGED", right=True),
    Column("REFUNDED", right=True),
    Column("GPU-HOURS", right=True, drop=2),
    Column("NOT CHARGED", right=True, drop=3),
    Column("UNCOVERED", right=True, drop=4),
    Column("WHY", drop=1, wraps=True),
)


def money_line(job: dict[str, Any]) -> str:
    """`vision-2026, 192 credits reserved, 12 charged so far`; empty where nobody pays."""
    account = str(job.get("account") or "")
    if not account:
        return ""
    parts = [account]
    if job.get("reserves") is not None:
        waits = job["state"] == "queued"
        told = credits_told(str(job["reserves"]))
        parts.append(f"will reserve {told}" if waits else f"{told} reserved")
    back = int(job.get("given_back_micro") or 0)
    if back:
        parts.append(f"{credits_of(int(job['cost_micro']) + back)} charged, {job['given_back']} of that given back")
    elif job.get("cost_micro"):
        parts.append(f"{job['cost']} charged")
    return ", ".join(parts)


def print_bills(bills: list[dict[str, Any]]) -> None:
    """What each run cost, and why, is on stdout."""
    print_table(COLUMNS, [_row(bill) for bill in bills])
    for bill in bills:
        if bill["evidence"]:
            print(f"{bill['run_id']}: not charged by the word of {_some(bill['evidence'])}")


def _row(bill: dict[str, Any]) -> list[str]:
    return [
        str(bill["run_id"]),
        str(bill["reserved"]),
        str(bill["charged"]) if bill["state"] == "settled" else "",
        str(bill["refunded"]),
        _hours(bill["gpu_us"]),
        _hours(bill["waived_us"]),
        str(bill["uncovered"]) if bill["uncovered_micro"] else "",
        _why(bill),
    ]


def _hours(gpu_us: int) -> str:
    """To the thousandth, which is seconds."""
    return f"{gpu_us / 3_600_000_000:.3f}" if gpu_us else ""


def _why(bill: dict[str, Any]) -> str:
    """`succeeded, at 2.5 a GPU-hour`; of one that is not settled, for how long it is covered."""
    until = parse_time(bill["running_out"]) if bill["state"] == "reserved" else None
    outcome = str(bill["outcome"]).replace("_", " ")
    if not outcome:
        outcome = f"covers {duration(bill['covers_s'])}" + ("" if bill["declared"] else ", then more")
    parts = [
        outcome,
        f"at {bill['per_gpu_hour']} a GPU-hour",
        f"credits run out at {until.astimezone():%H:%M:%S}" if until is not None else "",
        f"{bill['given_back']} given back" if bill["given_back_micro"] else "",
        f"borne by the {bill['bearer']}" if bill["uncovered_micro"] else "",
    ]
    return ", ".join(part for part in parts if part)


def _some(ids: list[str]) -> str:
    more = len(ids) - EVIDENCE_MAX
    return ", ".join(ids[:EVIDENCE_MAX]) + (f" and {more} more" if more > 0 else "")
