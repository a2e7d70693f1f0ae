"""`muster credits balance`: what accounts have, and how long it lasts."""

import json
from typing import Annotated, Any, Final

import typer

from services.cli.failure import EXIT_CODES
from services.cli.options import ApiUrl, AsJson, account_path, connect
from services.cli.table import Column, credits_told, print_table, print_wrapped

COLUMNS: Final = (
    Column("ACCOUNT"),
    Column("GRANTED", right=True, drop=3),
    Column("ADJUSTED", right=True, drop=5),
    Column("COMMITTED", right=True, drop=4),
    Column("RESERVED", right=True, drop=2),
    Column("BALANCE", right=True),
    Column("OVERDRAFT", right=True, drop=6),
    Column("OWED", right=True, drop=1),
    Column("PER DAY", right=True, drop=2),
    Column("DAYS LEFT", right=True),
    Column("STATE"),
)
LABEL: Final = 12


def balance(
    account: Annotated[
        str, typer.Argument(metavar="[ACCOUNT]", help="One account, with all that is known; else all.")
    ] = "",
    *,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """What accounts have, less what is reserved, and for how many days that lasts. --json: one document a line.

    Balance = granted + adjusted - committed - reserved. Days left: the balance by the credits a day that were used in the
    last seven days, or since the first use.
    """
    with connect(api_url) as client:
        if account:
            found = [client.get(account_path(account), thing=account)]
        else:
            found = client.get("/credits/accounts", thing="accounts")["accounts"]
        if as_json:
            for one in found:
                print(json.dumps(one))
        elif account:
            for name, value in lines(found[0]):
                print_wrapped(value, f"{name:<{LABEL}}")
        else:
            print_table(COLUMNS, [_row(one) for one in found])


balance.__doc__ = f"{balance.__doc__}\n\n{EXIT_CODES}"


def _row(account: dict[str, Any]) -> list[str]:
    told = account["forecast"]
    return [
        str(account["account"]),
        str(account["granted"]),
        str(account["adjusted"]),
        str(account["committed"]),
        str(account["reserved"]),
        str(account["balance"]),
        overdraft(account),
        str(account["owed"]),
        _rounded(told["per_day_micro"]),
        _days(told["days_left"]),
        _state(account),
    ]


def lines(account: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of all that is known of an account."""
    told, state, runs = account["forecast"], _state(account), int(account["reservations"])
    named = str(account["account"])
    headroom = "as much as is asked for" if account["headroom"] is None else account["headroom"]
    per_day = f"{credits_told(_rounded(told['per_day_micro']))} a day" if told["per_day"] is not None else "not known"
    return [
        ("account", f"{named} ({state})" if state else named),
        ("pays for", ", ".join(account["queues"])),
        ("granted", str(account["granted"])),
        ("adjusted", str(account["adjusted"])),
        ("committed", str(account["committed"])),
        ("reserved", f"{account['reserved']}, for {runs} run{'' if runs == 1 else 's'}" if runs else "0"),
        ("balance", str(account["balance"])),
        ("overdraft", f"{overdraft(account)}: {headroom} may still be reserved"),
        ("owed", str(account["owed"])),
        ("burn", per_day),
        ("days left", _days(told["days_left"]) or "not known"),
        ("", str(told["basis"])),
    ]


def overdraft(account: dict[str, Any]) -> str:
    """`500`, or `unlimited`."""
    return "unlimited" if account["overdraft"] is None else str(account["overdraft"])


def _state(account: dict[str, Any]) -> str:
    if account["closed"]:
        return "closed"
    if account["closing"]:
        return "closing"
    return "" if account["listed"] else "not listed"


def _rounded(micro: int | None) -> str:
    """A pace, which is no amount of money: two decimals are enough."""
    return "" if micro is None else f"{micro / 1_000_000:.2f}".rstrip("0").rstrip(".")


def _days(left: float | None) -> str:
    return "" if left is None else f"{left:.1f}".removesuffix(".0")
