"""`muster credits grant` and `adjust`: what operators ask of an account, under a key, and what became of it."""

import json
import uuid
from typing import Annotated, Any, Final

import typer

from services.cli.client import Client, Refusal
from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.cli.options import AccountArgument, ApiUrl, AsJson, account_path, connect
from services.cli.standing import as_operator
from services.main.local import CLOCK

WAIT_S: Final = 20.0  # of one question what became of it
WITHIN_S: Final = 60.0
NEGATIVE: Final = {"ignore_unknown_options": True}  # -5 is a number: no option begins with a digit

Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Kept in the log, and shown in the statement.", show_default=False),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Idempotency key: the same key again does nothing more, for ever. Default: a new one.",
        show_default=False,
    ),
]


def grant(
    account: AccountArgument,
    amount: Annotated[str, typer.Argument(metavar="CREDITS", help="A decimal: 1000, 0.5.", show_default=False)],
    *,
    reason: Reason,
    key: Key = None,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Give an account more credits. What it has then is on stdout. --json: the ask with `balance`."""
    with connect(api_url) as client:
        body = {"credits": amount, "reason": _reason(reason), "key": _key(key)}
        _ask(client, account, "grants", body, as_json=as_json)


def adjust(
    account: AccountArgument,
    change: Annotated[
        str, typer.Argument(metavar="±CREDITS", help="What the balance changes by: +12, -5.", show_default=False)
    ],
    *,
    reason: Reason,
    refunds: Annotated[
        str | None,
        typer.Option(
            "--refunds",
            metavar="RUN",
            help="Give back what this run was charged, or a part of it. Its id may be shortened.",
        ),
    ] = None,
    key: Key = None,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Correct an account's balance, up or down, by a new entry: old ones never change. What it has then is on stdout.

    Downwards only as far as the account has credits, its overdraft among them. With --refunds RUN no more than that run was
    charged, earlier refunds of it taken off.
    """
    with connect(api_url) as client:
        body = {"credits": change, "reason": _reason(reason), "key": _key(key)}
        _ask(client, account, "adjustments", body | ({"refunds": refunds} if refunds else {}), as_json=as_json)


for command in (grant, adjust):
    command.__doc__ = f"{command.__doc__}\n\n{EXIT_CODES}"


def _reason(reason: str) -> str:
    """It says something: nobody can add it later."""
    if not reason.strip():
        raise typer.BadParameter("--reason is empty: is a variable unset?")
    return reason


def _key(key: str | None) -> str:
    """Made here, before the first try: a retry is the same ask."""
    if key is not None and not key:
        raise typer.BadParameter("--key is empty: is a variable unset? Leave it out for a key of its own")
    return key or str(uuid.uuid4())


def _ask(client: Client, account: str, what: str, body: dict[str, Any], *, as_json: bool) -> None:
    """What became of it is told. Raises `Failure`, also where it was refused."""
    asked = client.post(account_path(account, what), body, thing=account, headers=as_operator())
    answered = _answered(client, asked)
    after = client.get(account_path(account), {"min_position": answered["position"]}, thing=account)
    if asked["repeated"]:
        say(f"{account}: this key was used before: nothing more was done")
    if as_json:
        print(json.dumps({**answered, "balance": after["balance"], "balance_micro": after["balance_micro"]}))
    if answered["state"] == "refused":
        code = str(answered["code"])
        raise Refusal(account, answered["message"], hint=HINTS.get(code, ""), code=ExitCode.REFUSED, named=code)
    if not as_json:
        sign = "+" if int(answered["amount_micro"]) > 0 else ""
        print(f"{account}: {sign}{answered['amount']}, balance {after['balance']}, reserved {after['reserved']}")


HINTS: Final = {
    "not_covered": "muster credits balance shows what each account has",
    "beyond_commit": "muster job ID shows what each run was charged",
}


def _answered(client: Client, asked: dict[str, Any]) -> dict[str, Any]:
    """The ask once it is answered. Raises `Failure` when that takes too long."""
    ask_id, began_s = str(asked["ask_id"]), CLOCK.monotonic()
    while True:
        params = {"min_position": asked["position"], "wait_s": WAIT_S}
        found = client.get(f"/credits/asks/{ask_id}", params, thing=str(asked["account"]))
        if found["state"] != "asked":
            return found
        if CLOCK.monotonic() - began_s > WITHIN_S:
            hint = f"it is in the log, and will be: the same command again with --key {asked['key']} tells"
            told = f"was not answered within {WITHIN_S:g} s; does a control plane run?"
            raise Failure(str(asked["account"]), told, hint=hint, code=ExitCode.TIMEOUT)
