"""`muster credits grant` and `adjust`: keys, signs, and what became of it."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli import grant as module
from services.cli.app import app
from services.cli.client import Refusal
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

ASKED: dict[str, Any] = {"ask_id": "a1", "account": "red", "key": "k", "position": 7, "repeated": False}
DONE: dict[str, Any] = {
    "ask_id": "a1", "account": "red", "kind": "grant", "amount": "100", "amount_micro": 100_000_000, "state": "done",
    "code": "", "message": "", "entry": 3, "position": 9,
}  # fmt: skip
ACCOUNT: dict[str, Any] = {"account": "red", "balance": "150", "balance_micro": 150_000_000, "reserved": "20"}


def invoke(network: Network, *args: str) -> tuple[int, str, str, BaseException | None]:
    """Exit code, stdout, stderr, and what was raised."""
    done = CliRunner().invoke(app, ["credits", *args, "--api-url", network.url])
    return done.exit_code, done.stdout, done.stderr, done.exception


def test_a_grant_is_asked_for_once_and_waited_for(network: Network) -> None:
    """The key is made before the first try: an answer that is lost is asked for again under it."""
    network.answers.extend([(-1, None), (202, ASKED), (200, DONE | {"state": "asked"}), (200, DONE), (200, ACCOUNT)])
    code, out, _, _ = invoke(network, "grant", "red", "100", "--reason", "order 1")
    assert (code, out) == (0, "red: +100, balance 150, reserved 20\n")
    paths = [path for path, _ in network.asked]
    assert paths[:2] == ["/v1/credits/accounts/red/grants"] * 2
    assert paths[2:] == ["/v1/credits/asks/a1?min_position=7&wait_s=20.0"] * 2 + [
        "/v1/credits/accounts/red?min_position=9"
    ]
    bodies = [body for _, body in network.asked[:2]]
    assert bodies[0] == bodies[1]
    assert (bodies[0]["credits"], bodies[0]["reason"], len(bodies[0]["key"])) == ("100", "order 1", 36)
    assert network.headers[0]["muster-operator"]


@pytest.mark.parametrize("change", ["-5", "-0.25", "+12", "12"])
def test_a_number_below_nothing_can_be_typed(network: Network, change: str) -> None:
    """It is no option, wherever it stands after the account."""
    answered = DONE | {
        "kind": "adjustment",
        "amount": change.removeprefix("+"),
        "amount_micro": int(float(change) * 1e6),
    }
    network.answers.extend([(202, ASKED), (200, answered), (200, ACCOUNT)])
    code, out, _, _ = invoke(network, "adjust", "red", change, "--reason", "twice", "--key", "k")
    assert code == 0
    assert out.startswith(f"red: {'' if change.startswith('-') else '+'}{change.removeprefix('+')}, balance 150")
    assert network.asked[0] == (
        "/v1/credits/accounts/red/adjustments",
        {"credits": change, "reason": "twice", "key": "k"},
    )


def test_a_refund_names_its_run(network: Network) -> None:
    """--json: the ask, with what the account has then."""
    network.answers.extend([(202, ASKED | {"repeated": True}), (200, DONE), (200, ACCOUNT)])
    code, out, err, _ = invoke(network, "adjust", "red", "5", "--refunds", "j1-1", "--reason", "slow", "--json")
    assert (code, json.loads(out)) == (0, DONE | {"balance": "150", "balance_micro": 150_000_000})
    assert network.asked[0][1]["refunds"] == "j1-1"
    assert "this key was used before: nothing more was done" in err


def test_a_refusal_has_its_exit_code(network: Network) -> None:
    """And its reason, as the control plane put it."""
    refused = DONE | {"state": "refused", "code": "not_covered", "message": "has 3, and 5 are to go", "amount": "-5"}
    network.answers.extend([(202, ASKED), (200, refused), (200, ACCOUNT)])
    _, out, _, raised = invoke(network, "adjust", "red", "-5", "--reason", "wrong")
    assert isinstance(raised, Refusal)
    assert (raised.code, str(raised), out) == (ExitCode.REFUSED, "red: has 3, and 5 are to go [not_covered]", "")
    assert raised.hint


def test_what_is_not_answered_ends_the_wait(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint has the key: the same command again tells."""
    monkeypatch.setattr(module, "WITHIN_S", 0.0)
    network.answers.extend([(202, ASKED), (200, DONE | {"state": "asked"})])
    _, _, _, raised = invoke(network, "grant", "red", "100", "--reason", "order 1", "--key", "k")
    assert isinstance(raised, Failure)
    assert (raised.code, "--key k" in raised.hint) == (ExitCode.TIMEOUT, True)


def test_what_is_left_out_is_asked_for(network: Network) -> None:
    """A reason, an amount; a reason or a key that is empty; an option that there is none of."""
    for args in (
        ("grant", "red", "100"),
        ("grant", "red", "--reason", "x"),
        ("grant", "red", "100", "--reason", " "),
        ("adjust", "red", "-5", "--reason", ""),
        ("grant", "red", "100", "--reason", "x", "--key", ""),
        ("adjust", "red", "-5", "--reason", "x", "--refund", "j1-1"),
    ):
        code, out, _, _ = invoke(network, *args)
        assert (code, out) == (2, ""), args
    assert network.asked == []
