"""`muster queue`: the tree by which teams share the cluster, shown and set as one document."""

import json
from typing import Annotated, Any, Final

import typer

from services.cli.failure import EXIT_CODES
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.specfile import read_document
from services.cli.standing import DryRun, FileArgument, Kind, Over, as_file, held, put
from services.cli.standing import show as show_answer
from services.cli.table import Column, print_table

app = typer.Typer(name="queue", no_args_is_help=True, help="Show and set how teams share the cluster.")

QUEUES: Final = Kind("queues", "/queues/document")
EXAMPLE: Final = (
    "for instance:  queues: [{name: research, weight: 3}, {name: sales, weight: 2}]  (see examples/queues.yaml)"
)
NUMBERS: Final = ("weight", "floor", "limit", "borrowing_limit", "lending_limit", "pending_max", "running_max")
COLUMNS: Final = (
    Column("QUEUE"),
    Column("WEIGHT", right=True),
    Column("FLOOR", right=True),
    Column("LIMIT", right=True),
    Column("BORROWS", right=True, drop=2),
    Column("LENDS", right=True, drop=2),
    Column("PENDING", right=True, drop=3),
    Column("RUNNING", right=True, drop=3),
    Column("ORDER", drop=4),
    Column("STOP", drop=1),
)


@app.command()
def apply(
    file: FileArgument, *, dry_run: DryRun = False, over: Over = None, as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Set the queues to those in FILE, whole. What changes is on stdout. What holds already is not written again.

    Another operator who sets them meanwhile is not overwritten: the command says who it was, and writes nothing.
    """
    with connect(api_url) as client:
        spec = read_document(file, "a queue file", EXAMPLE)
        position = int(held(client, QUEUES)["position"]) if over is None else over
        answer = put(client, QUEUES, spec, over=position, dry_run=dry_run)
    show_answer(answer, QUEUES, dry_run=dry_run, as_json=as_json)


apply.__doc__ = f"{apply.__doc__}\n\n{EXIT_CODES}"


@app.command()
def show(
    *,
    file: Annotated[bool, typer.Option("--file", help="As a file that `muster queue apply` takes.")] = False,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """The queues as they were set: a tree, with a line for each GPU type that has bounds of its own."""
    with connect(api_url) as client:
        found = held(client, QUEUES)
    if as_json:
        print(json.dumps(found))
    elif file:
        print("\n".join(as_file(found, "queue")))
    else:
        print_table(COLUMNS, [row for queue in found["document"]["queues"] for row in _rows(queue, 0)])


def _rows(queue: dict[str, Any], depth: int) -> list[list[str]]:
    """A queue, its GPU types, and all below it."""
    words = [str(queue.get("order", "best_effort")), str(queue.get("stop", "none"))]
    rows = [["  " * depth + str(queue["name"]), *_numbers(queue), *words]]
    for gpu_type, bounds in sorted(queue.get("gpu_types", {}).items()):
        rows.append(["  " * depth + f"  [{gpu_type}]", *_numbers(bounds), "", ""])
    return rows + [row for child in queue.get("children", []) for row in _rows(child, depth + 1)]


def _numbers(bounds: dict[str, Any]) -> list[str]:
    return [str(bounds.get(name, "-")) for name in NUMBERS]
