"""`muster alarms`: what needs a person; and `muster node return`: a person says that GPUs are sound."""

import json
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from services.cli.failure import EXIT_CODES, say
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.place import shown
from services.cli.standing import as_operator
from services.cli.table import Column, ago, counted, print_table

COLUMNS: Final = (
    Column("ALARM"),
    Column("RAISED"),
    Column("CLEARED", drop=1),
    Column("NODES", drop=3),
    Column("WHAT", wraps=True),
)
ALARMS: Final = 50
NAMED: Final = 3  # nodes in a line


def alarms(
    *,
    past: Annotated[bool, typer.Option("--past", help="Those that are over too.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = ALARMS,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Alarms that are raised, newest first: what is wrong with many nodes at once, and what to do. --json: one document a line."""
    with connect(api_url) as client:
        query = {"raised": "false" if past else "true", "limit": limit}
        found: list[dict[str, Any]] = client.get("/alarms", query, thing="alarms")["alarms"]
        if as_json:
            for alarm in found:
                print(json.dumps(alarm))
            return
        print_table(COLUMNS, [_row(alarm, client.now) for alarm in found])
    raised = sum(alarm["cleared_at"] is None for alarm in found)
    say(f"{counted(raised, 'alarm')} raised" if raised else "no alarm is raised; muster nodes shows what is out of use")


def _row(alarm: dict[str, Any], now: datetime) -> list[str]:
    names, more = alarm["nodes"][:NAMED], alarm["nodes_total"] - NAMED
    return [
        str(alarm["code"]),
        ago(alarm["raised_at"], now),
        ago(alarm["cleared_at"], now) if alarm["cleared_at"] else "",
        ",".join(names) + (f" +{more}" if more > 0 else ""),
        ". ".join(part.rstrip(".") for part in (alarm["message"], alarm["hint"]) if part),
    ]


def give_back(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name.")],
    *,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", metavar="SLOT|UUID", help="This one; may be repeated. None: all that are out."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with what is written.")] = "",
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """GPUs of the node are sound: use them again, whatever they were taken out for. Prints their UUIDs."""
    with connect(api_url) as client:
        answer = client.post(
            f"/nodes/{node}/gpus/return",
            {"gpus": gpu or [], "reason": reason},
            thing=node,
            headers=as_operator(),
        )
    if as_json:
        print(json.dumps(answer))
        return
    for uuid in answer["gpus"]:
        print(uuid)
    say(f"return: {counted(len(answer['gpus']), 'GPU')} of {node}, at position {shown(answer['position'])}")


give_back.__doc__ = f"{give_back.__doc__}\n\n{EXIT_CODES}"
