"""`muster node`: nodes by name or by label, and the words that keep new work from them."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from services.cli.client import Client
from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.place import shown
from services.cli.standing import as_operator


class NodeGroup(TyperGroup):
    """Commands about nodes; the name of a node instead of one shows that node."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401  # typer's own
        """The command that is named; `show`, where the first word is none and no option."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="node",
    cls=NodeGroup,
    no_args_is_help=True,
    help="Show a node (`muster node NAME`), take nodes out of use and put them back.",
)

NODES_MAX: Final = 1_000  # in one call

Names = Annotated[list[str] | None, typer.Argument(metavar="[NODE…]", help="Names of nodes.", show_default=False)]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", "-l", metavar="KEY=VALUE", help="All nodes with this label; may be repeated: with all of them."
    ),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with what is written.")]


@app.command()
def cordon(
    names: Names = None, *, label: Labels = None, reason: Reason = "", as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Place nothing new on the nodes; what runs there goes on. A name that no node has: nothing is written."""
    _say("cordon", Wanted(names or [], label or []), reason=reason, as_json=as_json, api_url=api_url)


@app.command()
def uncordon(
    names: Names = None, *, label: Labels = None, reason: Reason = "", as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Place on the nodes again. A name that no node has: nothing is written."""
    _say("uncordon", Wanted(names or [], label or []), reason=reason, as_json=as_json, api_url=api_url)


for command in (cordon, uncordon):
    command.__doc__ = f"{command.__doc__}\n\n{EXIT_CODES}"


class Wanted:
    """Which nodes are meant. Raises `Failure`."""

    def __init__(self, names: Sequence[str], labels: Sequence[str]) -> None:
        if not names and not labels:
            raise Failure("node", "which ones? Name nodes, or give a --label", code=ExitCode.USAGE)
        if names and labels:
            raise Failure("node", "either names or labels", code=ExitCode.USAGE)
        self.names = list(dict.fromkeys(names))
        self.labels = labels_of(labels)

    def found(self, client: Client) -> list[str]:
        """The names of the nodes. Raises `Failure` where no node has the labels."""
        if self.names:
            return self.names
        known: list[dict[str, Any]] = client.get("/nodes", thing="nodes")["nodes"]
        nodes = [node for node in known if not node.get("retired_at")]
        found = [str(node["node_id"]) for node in nodes if self.labels.items() <= node["labels"].items()]
        if not found:
            told = ", ".join(f"{key}={value}" for key, value in self.labels.items())
            seen = sorted({f"{key}={value}" for node in nodes for key, value in node["labels"].items()})
            hint = f"there are {', '.join(seen[:10])}" if seen else "no node has any label"
            labels = "label" if len(self.labels) == 1 else "labels"
            raise Failure("node", f"no node has the {labels} {told}", hint=hint, code=ExitCode.NOT_FOUND)
        return found


def labels_of(typed: Sequence[str]) -> dict[str, str]:
    """The values by their names, of texts like KEY=VALUE. Raises `Failure`, also where one is to be two things at once."""
    labels: dict[str, str] = {}
    for text in typed:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Failure("--label", f"{text!r} is not KEY=VALUE", code=ExitCode.USAGE)
        if labels.setdefault(key, value) != value:
            raise Failure(
                "--label",
                f"{key} is to be {labels[key]} and {value}, and no node has both",
                hint="labels that are repeated mean the nodes with all of them: say it once for each value",
                code=ExitCode.USAGE,
            )
    return labels


def _say(word: str, wanted: Wanted, *, reason: str, as_json: bool, api_url: str) -> None:
    """The word is said of the nodes; those of which it is news or not are on stdout, a line each."""
    with connect(api_url) as client:
        for names in in_parts(wanted.found(client)):
            answer = client.post(
                f"/nodes:{word}",
                {"nodes": names, "reason": reason},
                thing=word,
                headers=as_operator(),
            )
            if as_json:
                print(json.dumps(answer))
                continue
            for name in answer["nodes"]:
                print(name)
            at = f"at position {shown(answer['position'])}"
            done = "was so already: nothing was written" if answer["repeated"] else at
            say(f"{word}: {len(names)} node{'s' if len(names) > 1 else ''}, {done}")


def in_parts(names: list[str]) -> Iterator[list[str]]:
    """As many at a time as one call takes."""
    for start in range(0, len(names), NODES_MAX):
        yield names[start : start + NODES_MAX]
