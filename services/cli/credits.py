"""`muster credits`: what accounts have and did, and the documents that say who pays and what GPUs cost."""

import json
from typing import Final

import typer

from services.cli.balance import balance
from services.cli.close import ACCOUNTS, close
from services.cli.export import export
from services.cli.failure import EXIT_CODES
from services.cli.grant import NEGATIVE, adjust, grant
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.reconcile import reconcile
from services.cli.specfile import read_document
from services.cli.standing import DryRun, FileArgument, Kind, Over, as_file, held, put
from services.cli.standing import show as show_answer
from services.cli.statement import statement

app = typer.Typer(name="credits", no_args_is_help=True, help="Who pays for GPU time, what it costs, and what was used.")
accounts = typer.Typer(no_args_is_help=True, help="Show and set the accounts: who pays for which queues.")
prices = typer.Typer(no_args_is_help=True, help="Show and set what an hour of a GPU costs.")

PRICES: Final = Kind("prices", "/credits/prices")
ACCOUNTS_EXAMPLE: Final = (
    "for instance:  accounts: [{name: vision-2026, queues: [vision], overdraft: 500}]  (see examples/accounts.yaml)"
)
PRICES_EXAMPLE: Final = "for instance:  lists: [{gpu_hour: {h100: 2.5, '*': 1}}]  (see examples/prices.yaml)"


@accounts.command(name="apply")
def apply_accounts(
    file: FileArgument, *, dry_run: DryRun = False, over: Over = None, as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Set the accounts to those in FILE, whole. What changes is on stdout. What holds already is not written again.

    Another operator who sets them meanwhile is not overwritten: the command says who it was, and writes nothing.
    """
    with connect(api_url) as client:
        spec = read_document(file, "an accounts file", ACCOUNTS_EXAMPLE)
        position = int(held(client, ACCOUNTS)["position"]) if over is None else over
        answer = put(client, ACCOUNTS, spec, over=position, dry_run=dry_run)
    show_answer(answer, ACCOUNTS, dry_run=dry_run, as_json=as_json)


@prices.command(name="apply")
def apply_prices(
    file: FileArgument, *, dry_run: DryRun = False, over: Over = None, as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Set the price lists to those in FILE, whole. What is reserved already keeps its price.

    Another operator who sets them meanwhile is not overwritten: the command says who it was, and writes nothing.
    """
    with connect(api_url) as client:
        spec = read_document(file, "a price file", PRICES_EXAMPLE)
        position = int(held(client, PRICES)["position"]) if over is None else over
        answer = put(client, PRICES, spec, over=position, dry_run=dry_run)
    show_answer(answer, PRICES, dry_run=dry_run, as_json=as_json)


for command in (apply_accounts, apply_prices):
    command.__doc__ = f"{command.__doc__}\n\n{EXIT_CODES}"


@accounts.command(name="show")
def show_accounts(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """The accounts as a file that `muster credits accounts apply` takes. For what they have: `muster credits balance`."""
    _show(ACCOUNTS, "credits accounts", as_json=as_json, api_url=api_url)


@prices.command(name="show")
def show_prices(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """The price lists as a file that `muster credits prices apply` takes."""
    _show(PRICES, "credits prices", as_json=as_json, api_url=api_url)


def _show(kind: Kind, command: str, *, as_json: bool, api_url: str) -> None:
    with connect(api_url) as client:
        found = held(client, kind)
    print(json.dumps(found) if as_json else "\n".join(as_file(found, command)))


app.add_typer(accounts, name="accounts")
app.add_typer(prices, name="prices")
app.command()(balance)
app.command()(statement)
app.command(context_settings=NEGATIVE)(grant)
app.command(context_settings=NEGATIVE)(adjust)
app.command()(close)
app.command()(export)
# Commands of modules that do more than credits, a line each.
app.command()(reconcile)
