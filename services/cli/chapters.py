"""`muster log`: the chapters of the log; `muster log roll` goes on in the next one."""

import json
from datetime import datetime
from typing import Any, Final

import typer

from services.cli.failure import say
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.place import shown
from services.cli.standing import as_operator
from services.cli.table import Column, counted, print_table

COLUMNS: Final = (
    Column("CHAPTER"),
    Column("RECORDS"),
    Column("BYTES", drop=2),
    Column("FROM", drop=3),
    Column("TO", drop=3),
    Column("CLOSED", drop=1),
    Column("DIGEST"),
)
DIGITS: Final = 16  # of a digest, where people read it; --json has all

app = typer.Typer(name="log", help="The chapters of the event log.", invoke_without_command=True)


@app.callback()
def log(context: typer.Context, *, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """The chapters of the log, the oldest first: how much each holds, from when to when, and what proves it.

    The last one is open: what is written goes there. --json: one document a line.
    """
    if context.invoked_subcommand is not None:
        return
    with connect(api_url) as client:
        found: list[dict[str, Any]] = client.get("/log", thing="log")["chapters"]
    if as_json:
        for chapter in found:
            print(json.dumps(chapter))
        return
    print_table(COLUMNS, list(map(_row, found)))
    say(f"{counted(len(found), 'chapter')}; the log ends at {shown(found[-1]['position'])}")


@app.command()
def roll(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """Close this chapter of the log and go on in the next: writers wait for a moment, and nothing is lost.

    Prints the position of the first record of the new chapter, and nothing else, on stdout.
    """
    with connect(api_url) as client:
        rolled = client.post("/log:roll", {}, thing="log roll", headers=as_operator())
    if as_json:
        print(json.dumps(rolled))
        return
    print(shown(rolled["position"]))
    gap = f"nothing was written for {rolled['gap_s'] * 1_000:.0f} ms" if rolled["gap_s"] else "another had asked too"
    say(f"chapter {rolled['chapter']} is open; the one before ends at {shown(rolled['closed'])}; {gap}")


def _row(chapter: dict[str, Any]) -> list[str]:
    closed = "" if chapter["cause"] is None else " ".join(filter(None, (chapter["cause"], chapter["by"])))
    return [
        str(chapter["chapter"]),
        str(chapter["records"]),
        "" if chapter["size_bytes"] is None else str(chapter["size_bytes"]),
        _time(chapter["first_at"]),
        _time(chapter["last_at"]),
        closed or "open",
        (chapter["digest"] or "")[:DIGITS],
    ]


def _time(text: str | None) -> str:
    return "" if text is None else f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S}"
