"""How a job ended, and waiting until it has: what `wait`, `submit --wait` and `run` share."""

import time
from typing import Any, Final

from services.cli.client import Client
from services.cli.failure import ExitCode, Failure, say
from services.cli.options import job_path
from services.main.local import CLOCK

TERMINAL: Final = frozenset({"succeeded", "failed", "cancelled", "timed_out", "rejected"})
HELD: Final = "failed_too_often"  # the hold code of what waits for a person: no use in waiting with it
LOOK_FIRST_S: Final = 0.1
LOOK_LAST_S: Final = 1.0
OUTAGE_MAX_S: Final = 60.0  # a server that restarts is waited for; one that stays away ends the wait
CODE_MAX: Final = 255
SIGNALLED: Final = 128  # 128 + n: ended by signal n
AWAY: Final = (ExitCode.UNREACHABLE, ExitCode.TIMEOUT)  # of one answer: servers or tables that come back


def wait_for(
    client: Client, job_id: str, *, since: int = 0, timeout_s: float | None = None, tell: bool = False
) -> dict[str, Any]:
    """The job's document once it has ended. With `tell`, each state on the way is on stderr.

    `since` is a position that the answers must not be older than: of the submit, so that the job is known.

    Raises: `Failure`, after `timeout_s`, or where it waits for a person, with the code for it.
    """
    began_s = answered_s = CLOCK.monotonic()
    pause_s, told = LOOK_FIRST_S, ""
    while True:
        try:
            job = client.get(job_path(job_id), {"min_position": since or None}, thing=job_id)
        except Failure as failure:
            if failure.code not in AWAY or CLOCK.monotonic() - answered_s > OUTAGE_MAX_S:
                raise
        else:
            answered_s = CLOCK.monotonic()
            told = _tell(job, told) if tell else told
            if job["state"] in TERMINAL:
                return job
            if job.get("hold_code") == HELD:
                raise _held(job_id)
        if timeout_s is not None and CLOCK.monotonic() - began_s + pause_s > timeout_s:
            hint = f"it goes on; wait again with: muster wait {job_id}"
            raise Failure(job_id, f"has not ended within {timeout_s:g} s", hint=hint, code=ExitCode.TIMEOUT)
        time.sleep(pause_s)
        pause_s = min(LOOK_LAST_S, pause_s * 1.3)


def _held(job_id: str) -> Failure:
    hint = f"muster job {job_id} shows what ended it; then muster resume {job_id}, or muster cancel {job_id}"
    return Failure(job_id, "is held: failures that are not its own ended it too often", hint=hint, code=ExitCode.HELD)


def _tell(job: dict[str, Any], told: str) -> str:
    state, code = str(job["state"]), str(job.get("hold_code") or "")
    line = f"{state} ({code.replace('_', ' ')})" if code else state
    if line != told and state not in TERMINAL:  # how it ended is for the caller to say
        say(f"{job['job_id']}: {line}")
    return line


def exit_code_of(job: dict[str, Any]) -> int:
    """What a command that waited for the job exits with."""
    if job["state"] == "succeeded":
        return ExitCode.OK
    code = int(job.get("exit_code") or 0)
    return code if job["state"] == "failed" and 0 < code <= CODE_MAX else ExitCode.ENDED_OTHERWISE


def code_text(code: int, category: str = "") -> str:
    """`exit code 3`, `exit code 137 (signal 9)`, `exit code 137 (out of memory)`; empty for 0."""
    if not code:
        return ""
    if category == "out_of_memory":
        return f"exit code {code} (out of memory)"
    return f"exit code {code}" + (f" (signal {code - SIGNALLED})" if SIGNALLED < code <= CODE_MAX else "")


def say_end(job: dict[str, Any]) -> None:
    """On stderr: how it ended, and where to look when that was not well."""
    job_id, state = job["job_id"], str(job["state"])
    if state == "succeeded":
        say(f"{job_id}: succeeded")
        return
    code = int(job.get("exit_code") or 0)
    cause = job.get("cancel_reason") if state == "cancelled" else job["message"] or job["reason"]
    details = ", ".join(
        part for part in (code_text(code, str(job.get("category") or "")), str(cause or "").replace("_", " ")) if part
    )
    say(f"{job_id}: {state.replace('_', ' ')}" + (f" ({details})" if details else ""))
    say(f"hint: muster job {job_id} shows what happened, muster logs {job_id} what it printed")
