"""`muster credits balance`: what accounts have, and how long it lasts, as people and programs see it."""

import json
from typing import Any

from typer.testing import CliRunner

from services.cli.app import app
from services.cli.balance import COLUMNS, lines
from services.cli.failure import ExitCode, Failure
from services.cli.table import fit
from tests.services.cli.network import Network

BASIS = "since 2026-11-23 12:00 UTC, 84 credits of recorded use and of runs that go on, over 7 days"
ACCOUNT: dict[str, Any] = {
    "account": "red", "queues": ["vision", "speech"], "granted": "1000", "adjusted": "-5", "committed": "80.5",
    "reserved": "48", "balance": "866.5", "overdraft": "500", "headroom": "1366.5", "owed": "0", "reservations": 2,
    "listed": True, "closing": False, "closed": False,
    "forecast": {"per_day": "12.3456", "per_day_micro": 12_345_600, "days_left": 70.19, "basis": BASIS},
}  # fmt: skip


def invoke(network: Network, *args: str) -> tuple[int, str]:
    """The exit code, and what is on stdout."""
    done = CliRunner().invoke(app, ["credits", "balance", *args, "--api-url", network.url])
    return done.exit_code, done.stdout


def test_each_account_is_a_line(network: Network) -> None:
    """With its pace, and the days that are left."""
    unknown = ACCOUNT["forecast"] | {"per_day": None, "per_day_micro": None, "days_left": None}
    blue = ACCOUNT | {"account": "blue", "overdraft": None, "headroom": None, "listed": False, "forecast": unknown}
    network.answers.append((200, {"accounts": [ACCOUNT, blue], "position": 3}))
    code, told = invoke(network)
    head, red, other = told.splitlines()
    assert code == 0
    assert head.split() == [
        "ACCOUNT",
        "GRANTED",
        "ADJUSTED",
        "COMMITTED",
        "RESERVED",
        "BALANCE",
        "OVERDRAFT",
        "OWED",
        "PER",
        "DAY",
        "DAYS",
        "LEFT",
        "STATE",
    ]
    assert red.split() == ["red", "1000", "-5", "80.5", "48", "866.5", "500", "0", "12.35", "70.2"]
    assert other.split() == ["blue", "1000", "-5", "80.5", "48", "866.5", "unlimited", "0", "not", "listed"]
    assert [json.loads(line)["account"] for line in invoke(network, "--json")[1].splitlines()] == ["red", "blue"]
    assert network.asked[0] == ("/v1/credits/accounts", None)


def test_one_account_is_told_whole(network: Network) -> None:
    """What may still be reserved, and what the forecast rests on."""
    network.answers.append((200, ACCOUNT))
    code, told = invoke(network, "red")
    assert code == 0
    for line in (
        "pays for    vision, speech",
        "balance     866.5",
        "reserved    48, for 2 runs",
        "overdraft   500: 1366.5 may still be reserved",
        "burn        12.35 credits a day",
        "days left   70.2",
        f"            {BASIS}",
    ):
        assert line in told.splitlines()
    assert json.loads(invoke(network, "red", "--json")[1]) == ACCOUNT
    closing = dict(lines(ACCOUNT | {"closing": True, "reservations": 1, "overdraft": None, "headroom": None}))
    assert (closing["account"], closing["reserved"]) == ("red (closing)", "48, for 1 run")
    assert closing["overdraft"] == "unlimited: as much as is asked for may still be reserved"


def test_narrow_terminals_keep_balance_and_days(network: Network) -> None:
    """80 columns hold what matters."""
    widths = [14, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]
    (head,) = fit(COLUMNS, [], 80)
    row = ["x" * width for width in widths]
    head, _ = fit(COLUMNS, [row], 80)
    assert {"ACCOUNT", "BALANCE", "DAYS LEFT", "OWED", "STATE"} <= {title.strip() for title in head}
    assert len("  ".join(head)) <= 80


def test_what_can_be_no_account_is_not_asked_for(network: Network) -> None:
    """Nor is a path of it made."""
    done = CliRunner().invoke(app, ["credits", "balance", "../jobs", "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, network.asked) == (ExitCode.USAGE, [])
    network.answers.append(
        (404, {"code": "account_not_found", "detail": "account: there is no account 'rde'", "hint": "h"})
    )
    done = CliRunner().invoke(app, ["credits", "balance", "rde", "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, done.exception.hint) == (ExitCode.NOT_FOUND, "h")
