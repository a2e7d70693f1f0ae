"""`muster credits close`: the document that says so, and waiting for it."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

DOCUMENT: dict[str, Any] = {"accounts": [{"name": "red", "queues": ["vision"]}]}
HELD: dict[str, Any] = {"document": DOCUMENT, "position": 7, "by": "", "at": None}
SET: dict[str, Any] = {"position": 9, "changed": True, "changes": [], "warnings": []}
NOVEMBER = {"month": "2026-11", "closed_at": "2026-12-02T00:00:00Z"}
MOVED: dict[str, Any] = {
    "code": "moved",
    "detail": "accounts: not the document that this was made from",
    "hint": "look",
}


def months(*closed: Any, following: str = "", waits_for: str = "") -> tuple[int, dict[str, Any]]:
    """An answer of the API."""
    told = {
        "closed_through": "2026-11",
        "closed": list(closed),
        "next": following,
        "waits_for": waits_for,
        "position": 9,
    }
    return 200, told


def invoke(network: Network, *args: str) -> Any:
    """What a command did."""
    return CliRunner().invoke(app, ["credits", "close", *args, "--api-url", network.url])


def test_a_month_is_closed_by_the_document_and_waited_for(network: Network) -> None:
    """All else in it stays; another operator's document that came first is taken along."""
    network.answers.extend([
        (200, HELD), (412, MOVED), (200, HELD | {"position": 8}), (200, SET),
        months(following="2026-11", waits_for="the use of 2 runs is being recorded"), months(NOVEMBER),
    ])  # fmt: skip
    done = invoke(network, "2026-11")
    assert (done.exit_code, done.stdout) == (0, "2026-11: closed at 2026-12-02T00:00:00Z\n")
    puts = [(body, network.headers[n]["if-match"]) for n, (_, body) in enumerate(network.asked) if body]
    assert puts == [
        (DOCUMENT | {"closed_through": "2026-11"}, '"7"'),
        (DOCUMENT | {"closed_through": "2026-11"}, '"8"'),
    ]
    assert network.asked[-1][0] == "/v1/credits/months?min_position=9"


def test_one_that_is_to_be_closed_already_is_only_waited_for(network: Network) -> None:
    """Nothing is written again."""
    network.answers.extend([(200, HELD | {"document": DOCUMENT | {"closed_through": "2026-12"}}), months(NOVEMBER)])
    done = invoke(network, "2026-11", "--json")
    assert (json.loads(done.stdout), [body for _, body in network.asked]) == (NOVEMBER, [None, None])


def test_one_before_the_first_is_closed_with_that(network: Network) -> None:
    """As exports of it say."""
    network.answers.extend([(200, HELD), (200, SET), months({**NOVEMBER, "month": "2026-12"})])
    done = invoke(network, "2026-11")
    assert (done.exit_code, done.stdout) == (0, "2026-11: closed at 2026-12-02T00:00:00Z\n")


@pytest.mark.parametrize(
    ("answer", "args", "code", "told"),
    [
        (months(following="2026-11", waits_for="2026-11 is over at 2026-12-01 00:00 UTC"), [], 5, "is over at"),
        (
            months(following="2026-11", waits_for="the use of 2 runs"),
            ["--timeout", "0"],
            5,
            "not closed yet: the use of 2",
        ),
    ],
    ids=["not over", "not recorded"],
)
def test_what_it_waits_for_is_told(network: Network, answer: Any, args: list[str], code: int, told: str) -> None:
    """Where that may take long, at once."""
    network.answers.extend([(200, HELD), (200, SET), answer])
    done = invoke(network, "2026-11", *args)
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, told in str(done.exception)) == (code, True), str(done.exception)


def test_a_refusal_is_told_and_what_is_no_month_is_not_asked(network: Network) -> None:
    """As the gate put it."""
    for none in ("november", "2026-13", "2026-1"):
        done = invoke(network, none)
        assert isinstance(done.exception, Failure)
        assert done.exception.code is ExitCode.USAGE
    assert network.asked == []
    network.answers.extend([(200, HELD), (422, {"code": "invalid", "detail": "closed_through: 2036-11 has not begun"})])
    done = invoke(network, "2036-11")
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, "has not begun" in str(done.exception)) == (ExitCode.REFUSED, True)
