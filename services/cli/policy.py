"""`muster policy`: how the control plane decides, shown and set, whole or field by field."""

import json
from typing import Annotated, Any, Final

import typer
import yaml

from services.cli.failure import EXIT_CODES, ExitCode, Failure
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.specfile import Spec, read_document
from services.cli.standing import DryRun, FileArgument, Kind, Over, as_file, held, put
from services.cli.standing import show as show_answer
from services.cli.table import Column, print_table

app = typer.Typer(name="policy", no_args_is_help=True, help="Show and set how the control plane decides.")

POLICY: Final = Kind("policy", "/policy")
EXAMPLE: Final = "for instance:  order: fair / promises: 1 / lost_after: 2m  (see examples/policy.yaml)"
COLUMNS: Final = (Column("FIELD"), Column("VALUE"))


@app.command()
def apply(
    file: FileArgument, *, dry_run: DryRun = False, over: Over = None, as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Set the policy to that in FILE, whole: what FILE leaves out gets its default. What changes is on stdout.

    Another operator who sets it meanwhile is not overwritten: the command says who it was, and writes nothing.
    """
    with connect(api_url) as client:
        spec = read_document(file, "a policy file", EXAMPLE)
        position = int(held(client, POLICY)["position"]) if over is None else over
        answer = put(client, POLICY, spec, over=position, dry_run=dry_run)
    show_answer(answer, POLICY, dry_run=dry_run, as_json=as_json)


@app.command(name="set")
def set_fields(
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help="For example lost_after=2m order=fifo.")],
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Change these fields of the policy that holds, and no others. What changes is on stdout."""
    given = dict(_pair(pair) for pair in pairs)
    with connect(api_url) as client:
        found = held(client, POLICY)
        document = found["document"]
        known = {
            name.removesuffix("_s") if name.removesuffix("_s") in document else name: v for name, v in given.items()
        }
        spec = Spec(document | known, "policy set", {})
        answer = put(client, POLICY, spec, over=int(found["position"]), dry_run=dry_run)
    show_answer(answer, POLICY, dry_run=dry_run, as_json=as_json)


for command in (apply, set_fields):
    command.__doc__ = f"{command.__doc__}\n\n{EXIT_CODES}"


@app.command()
def show(
    *,
    file: Annotated[bool, typer.Option("--file", help="As a file that `muster policy apply` takes.")] = False,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """The policy that holds, with every field."""
    with connect(api_url) as client:
        found = held(client, POLICY)
    if as_json:
        print(json.dumps(found))
    elif file:
        print("\n".join(as_file(found, "policy")))
    else:
        print_table(COLUMNS, [[name, _word(value)] for name, value in found["document"].items()])


def _pair(text: str) -> tuple[str, Any]:
    """A field and its value, which is read as in a file. Raises `Failure`."""
    name, equals, value = text.partition("=")
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise Failure("policy set", f"{name}: {value!r} is no value", code=ExitCode.USAGE) from error
    if not equals or not name:
        raise Failure("policy set", f"{text!r} is not KEY=VALUE", code=ExitCode.USAGE)
    return name.strip().replace("-", "_"), read


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
