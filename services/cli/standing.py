"""Documents that hold until another is set: read one, put another over the very one that was read, and say what became of it."""

import getpass
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Final, NamedTuple

import typer
import yaml

from services.cli.client import Client, Refusal
from services.cli.failure import say
from services.cli.place import parsed, shown
from services.cli.specfile import Spec

DryRun = Annotated[bool, typer.Option("--dry-run", help="Check it and show what would change; nothing is written.")]
Over = Annotated[
    int | None,
    typer.Option(
        "--over",
        metavar="POSITION",
        parser=parsed,
        help="Only over the document at this position: the one that you edited. Default: the one that holds now.",
        show_default=False,
    ),
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A YAML file; - is stdin.", show_default=False)]
PLACE: Final = re.compile(r"(?:^|(?<=; ))(?=[a-z_]+(?:\.[\w -]+)*: )")  # where a sentence begins that names a field
NAME_RULE: Final = re.compile(r"[^A-Za-z0-9@._-]+")


class Kind(NamedTuple):
    """A document and where it is."""

    name: str  # in messages
    path: str  # below the API's root


def held(client: Client, kind: Kind) -> dict[str, Any]:
    """The document that holds, as the API shows it: `document`, `position`, `by`, `at`."""
    return client.get(kind.path, thing=kind.name)


def put(client: Client, kind: Kind, spec: Spec, *, over: int, dry_run: bool) -> dict[str, Any]:
    """What the document changes, set over the one at position `over`. Raises `Failure`, with the line of each problem."""
    headers = as_operator() | {"If-Match": f'"{over}"'}
    try:
        return client.put(kind.path, spec.body, thing=spec.origin, headers=headers, dry_run="true" if dry_run else None)
    except Refusal as refusal:
        first, *others = sentences(refusal.reason)
        reason = "; ".join([first, *(f"{_line(spec, other)}{other}" for other in others)])
        raise Refusal(
            where(spec, first), reason, hint=refusal.hint, code=refusal.code, named=refusal.named
        ) from refusal


def sentences(message: str) -> list[str]:
    """The sentences of a refusal, each of which begins with its place in the document."""
    return [part.removesuffix("; ") for part in PLACE.split(message) if part]


def show(answer: dict[str, Any], kind: Kind, *, dry_run: bool, as_json: bool) -> None:
    """What changes is on stdout, a line each; what is odd, and what was done, on stderr."""
    if as_json:
        print(json.dumps(answer))
    else:
        for line in answer["changes"]:
            print(line)
    for warning in answer["warnings"]:
        say(f"warning: {warning}")
    if dry_run:
        say(f"{kind.name}: nothing was written" if answer["changes"] else f"{kind.name}: nothing would change")
    elif answer["changed"]:
        say(f"{kind.name}: set, at position {shown(answer['position'])}")
    else:
        say(f"{kind.name}: as it was, since position {shown(answer['position'])}: nothing was written")


def as_file(found: dict[str, Any], command: str) -> Iterator[str]:
    """The document as a file that can be edited and applied, and says over what."""
    position = shown(found["position"])
    yield f"# Position {position}. After editing: muster {command} apply FILE --over {position}"
    yield yaml.safe_dump(found["document"], sort_keys=False, allow_unicode=True, default_flow_style=None).rstrip()


def operator() -> str:
    """Who asks, as it is kept with what is written: the name that this user is logged in by."""
    name = ""
    with suppress(OSError, KeyError, ImportError):  # no such user in this container
        name = NAME_RULE.sub("-", getpass.getuser())[:64]
    return name or "operator"


def as_operator() -> dict[str, str]:
    """The headers of a call that says who asks."""
    return {"Muster-Operator": operator()}


def where(spec: Spec, sentence: str) -> str:
    """The place that a sentence of a refusal begins with: `FILE:LINE`, or `FILE` where it has none."""
    path = sentence.partition(": ")[0]
    while path not in spec.lines:
        path = path.rpartition(".")[0]
        if not path:
            return spec.origin
    return f"{spec.origin}:{spec.lines[path]}"


def _line(spec: Spec, sentence: str) -> str:
    place = where(spec, sentence)
    return "" if place == spec.origin else f"line {place.rpartition(':')[2]}: "
