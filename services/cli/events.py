"""`muster events`: what happened, from the event log, in order; -f goes on as it happens."""

import json
import time
from typing import Annotated, Any, Final

import httpx
import typer

from services.cli.client import Client
from services.cli.detail import detail, short_type
from services.cli.ended import OUTAGE_MAX_S
from services.cli.failure import Failure
from services.cli.options import ApiUrl, AsJson, connect, job_path
from services.cli.place import parsed, shown
from services.main.local import CLOCK

AGAIN_S: Final = 0.5


def events(
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as they happen.")] = False,
    job_id: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only of this job.")] = None,
    after: Annotated[
        int, typer.Option("--from", metavar="POS", parser=parsed, help="Only after this position, such as 1:27.")
    ] = 0,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """The events in the log, one a line: position, time, type, subject, details. --json: one document a line."""
    if job_id:
        job_path(job_id)
    with connect(api_url) as client:
        _print_from(client, after, {"job": job_id, "follow": "true" if follow else "false"}, as_json=as_json)


def _print_from(client: Client, position: int, filters: dict[str, Any], *, as_json: bool) -> None:
    """The events after `position` are on stdout. A stream that breaks off goes on where it was."""
    answered_s = CLOCK.monotonic()
    while True:
        try:
            with client.stream("/events", {**filters, "from": position}, thing="events") as sent:
                for event in sent:
                    answered_s = CLOCK.monotonic()
                    if event.data and event.id.isdigit():
                        position = int(event.id)
                        print_event(json.loads(event.data), as_json=as_json)
            if filters["follow"] == "false":
                return
        except httpx.TransportError as error:
            if CLOCK.monotonic() - answered_s > OUTAGE_MAX_S or (filters["follow"] == "false" and not position):
                raise client.unreachable(error) from error
        except Failure:
            raise
        time.sleep(AGAIN_S)


def print_event(event: dict[str, Any], *, as_json: bool) -> None:
    """The event is on stdout, on one line."""
    if as_json:
        print(json.dumps(event), flush=True)
        return
    subject = str(event.get("subject", ""))
    line = f"{shown(event['position']):<9}  {event['at']}  {short_type(event):<26}  {subject:<36}  {detail(event)}"
    print(line.rstrip(), flush=True)
