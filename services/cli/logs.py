"""`muster logs`: what the ranks of a job printed; -f goes on until the job has ended."""

import json
import sys
import time
from typing import Annotated, Any, Final, NamedTuple

import httpx
import typer

from services.cli.client import Client
from services.cli.ended import OUTAGE_MAX_S
from services.cli.failure import ExitCode, Failure, say
from services.cli.options import ApiUrl, AsJson, JobIdArgument, connect, job_path
from services.main.local import CLOCK

AGAIN_S: Final = 0.3


def logs(
    job_id: JobIdArgument,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", min=0, help="Only of this rank.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", min=0, help="Only the last N lines.")] = None,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """What the job printed, each line after the number of its rank (without it with --rank).

    --json: one document a line, with `rank`, `text`, `at`, `run_id`, `node_id`.
    """
    with connect(api_url) as client:
        if follow:
            try:
                follow_logs(client, job_id, Which(rank, tail), as_json=as_json)
            except KeyboardInterrupt:
                say(f"{job_id}: goes on without this command")
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            return
        answer = client.get(job_path(job_id, "logs"), {"rank": rank, "tail": tail}, thing=job_id)
        for line in answer["lines"]:
            print_line(line, as_json=as_json, with_rank=rank is None)


def print_line(line: dict[str, Any], *, as_json: bool, with_rank: bool) -> None:
    """The line is on stdout."""
    text = json.dumps(line) if as_json else f"{line['rank']}: {line['text']}" if with_rank else str(line["text"])
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Which(NamedTuple):
    """Which lines of a job."""

    rank: int | None = None  # None: of all
    tail: int | None = None  # at first only so many of what there is; None: all
    since: int = 0  # a position that the server must have seen: of the submit, so that it knows the job


def follow_logs(
    client: Client, job_id: str, which: Which, *, as_json: bool = False, timeout_s: float | None = None
) -> None:
    """Every line is on stdout, as it comes, until the job has ended. A stream that breaks off goes on where it was.

    Raises: `Failure`, after `timeout_s` with the code for it.
    """
    began_s = answered_s = CLOCK.monotonic()
    params = {**which._asdict(), "follow": "true", "min_position": which.since or None}
    del params["since"]
    while True:
        try:
            with client.stream(job_path(job_id, "logs"), params, thing=job_id) as sent:
                for event in sent:
                    answered_s = CLOCK.monotonic()
                    if timeout_s is not None and answered_s - began_s > timeout_s:
                        raise Failure(job_id, f"has not ended within {timeout_s:g} s", code=ExitCode.TIMEOUT)
                    if event.name == "end":
                        return
                    if event.data:
                        print_line(json.loads(event.data), as_json=as_json, with_rank=which.rank is None)
                    params |= {"after": event.id, "tail": None} if event.id else {}
        except httpx.TransportError as error:
            if CLOCK.monotonic() - answered_s > OUTAGE_MAX_S:
                raise client.unreachable(error) from error
        time.sleep(AGAIN_S)
