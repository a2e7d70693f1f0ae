"""`muster credits close`: a month is closed, so that exports of it never change again."""

import json
import time
from typing import Annotated, Any, Final

import typer

from services.cli.client import Client, Refusal
from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.cli.options import ApiUrl, AsJson, connect, month_named
from services.cli.specfile import Spec
from services.cli.standing import Kind, held, put
from services.main.local import CLOCK

ACCOUNTS: Final = Kind("accounts", "/credits/document")
TRIES: Final = 5  # over documents that others set meanwhile
WITHIN_S: Final = 15.0
LOOK_FIRST_S: Final = 0.1
LOOK_LAST_S: Final = 1.0


def close(
    month: Annotated[str, typer.Argument(metavar="YYYY-MM", help="The month, of UTC: 2026-11.", show_default=False)],
    *,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="Longest wait; it is closed later all the same."),
    ] = WITHIN_S,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Close the months up to this one: all their usage is recorded, and exports of them never change again.

    Sets `closed_through` in the accounts' document, then waits until the month is closed, or says what it waits for.
    """
    with connect(api_url) as client:
        position = _set(client, month_named("close", month))
        closed = _wait(client, month, position, timeout)
    if as_json:
        print(json.dumps(closed))
    else:
        print(f"{month}: closed at {closed['closed_at']}")


close.__doc__ = f"{close.__doc__}\n\n{EXIT_CODES}"


def _set(client: Client, month: str) -> int:
    """The position of a document by which the month is to be closed. Another that is set meanwhile is kept but for that."""
    for _ in range(TRIES):
        found = held(client, ACCOUNTS)
        document, position = found["document"], int(found["position"])
        if str(document.get("closed_through") or "") >= month:
            return position
        spec = Spec(document | {"closed_through": month}, f"close {month}", {})
        try:
            answer = put(client, ACCOUNTS, spec, over=position, dry_run=False)
        except Refusal as refusal:
            if refusal.named != "moved":
                raise
        else:
            for warning in answer["warnings"]:
                say(f"warning: {warning}")
            return int(answer["position"])
    raise Failure(f"close {month}", "the accounts are being set all the time", hint="try again", code=ExitCode.REFUSED)


def _wait(client: Client, month: str, position: int, timeout_s: float) -> dict[str, Any]:
    """The month once it is closed. Raises `Failure` with what it waits for."""
    began_s, pause_s = CLOCK.monotonic(), LOOK_FIRST_S
    while True:
        found = client.get("/credits/months", {"min_position": position or None}, thing="months")
        closed: dict[str, dict[str, Any]] = {str(one["month"]): one for one in found["closed"]}
        if month in closed:
            return closed[month]
        if not found["next"]:  # another, later one was the first that was ever closed: with all before it
            return closed[min(closed)] | {"month": month}
        waits = str(found["waits_for"])
        if CLOCK.monotonic() - began_s + pause_s > timeout_s or " is over at " in waits:
            hint = f"it will be closed; muster credits close {month} again waits for it"
            raise Failure(f"close {month}", f"is not closed yet: {waits}", hint=hint, code=ExitCode.TIMEOUT)
        time.sleep(pause_s)
        pause_s = min(LOOK_LAST_S, pause_s * 1.3)
