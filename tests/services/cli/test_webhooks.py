"""`muster webhooks`: what is asked of the API, what is printed, and that a secret is made once."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from services.webhooks.signature import parse_secret
from tests.services.cli.network import DROP, Network

WEBHOOK: dict[str, Any] = {
    "endpoint_id": "wabc", "url": "https://hooks.example/a", "types": ["musterbook.job.*"], "teams": ["red"], "accounts": [],
    "description": "paging", "enabled": True, "stopped": "", "after": (1 << 40) + 7, "quiet_until": None,
    "created_at": "2026-01-01T00:00:00Z", "created_by": "api:ada",
}  # fmt: skip
DELIVERY: dict[str, Any] = {
    "webhook_id": "1f-0", "position": (1 << 40) + 9, "event_type": "musterbook.job.placed.v1", "state": "waiting",
    "attempts": 2, "next_try": "2026-01-01T00:05:00Z", "last_status": 500, "last_problem": "",
    "last_at": "2026-01-01T00:00:00Z", "made_at": "2026-01-01T00:00:00Z",
}  # fmt: skip


def invoke(network: Network, *argv: str) -> Any:
    """What `muster webhooks …` did."""
    return CliRunner().invoke(app, ["webhooks", *argv, "--api-url", network.url])


def test_a_webhook_is_added_and_its_secret_printed(network: Network) -> None:
    """Id and secret are on stdout, each on a line; a try without an answer is made again with the same key and secret."""
    network.answers.extend([(DROP, None), (201, WEBHOOK | {"secret": "whsec_x", "repeated": False})])
    done = invoke(
        network, "add", WEBHOOK["url"], "--types", "job.*,credit.*", "--types", "log.founded", "--team", "red"
    )
    name, secret = done.stdout.split()
    assert (done.exit_code, name) == (0, "wabc")
    assert "behind position 1:7" in done.stderr
    (_, first), (path, second) = network.asked
    assert path == "/v1/webhooks"
    assert first == second
    assert second["secret"] == secret
    assert parse_secret(secret)
    assert (second["types"], second["teams"]) == (["job.*", "credit.*", "log.founded"], ["red"])
    assert network.headers[0]["muster-operator"]


def test_webhooks_are_listed_and_shown(network: Network) -> None:
    """With what was sent to them; --json is what the API says."""
    network.answers.extend([(200, {"webhooks": [WEBHOOK], "position": 9})])
    listed = invoke(network, "list").stdout.splitlines()
    assert listed[0].split()[:3] == ["WEBHOOK", "STATE", "URL"]
    assert listed[1].split()[:5] == ["wabc", "on", "https://hooks.example/a", "job.*", "red"]
    assert json.loads(invoke(network, "list", "--json").stdout) == WEBHOOK
    replay = {"after": 0, "until": (1 << 40) + 8, "reached": (1 << 40) + 8, "matched": 3, "ended_at": None}
    more = {
        "deliveries": {"waiting": 2, "failed": 0},
        "replays": [replay],
        "secrets": 2,
        "enabled": False,
        "stopped": "gone",
    }
    network.answers[:] = [(200, {"webhooks": [WEBHOOK | {"enabled": False, "stopped": "operator"}], "position": 9})]
    assert invoke(network, "list").stdout.splitlines()[1].split()[:2] == ["wabc", "disabled"]
    network.answers[:] = [(200, WEBHOOK | more)]
    shown = invoke(network, "show", "wabc").stdout
    for line in (
        "state       disabled: gone", "deliveries  2 waiting", "secrets     2 sign", "behind 0:0 up to 1:8: 3 events, at 1:8"
    ):  # fmt: skip
        assert line in shown


def test_a_webhook_is_stopped_started_and_removed(network: Network) -> None:
    """Its id is on stdout."""
    network.answers.append((200, WEBHOOK))
    for argv, asked in (
        (["disable", "wabc"], {"enabled": False}),
        (["enable", "wabc"], {"enabled": True}),
        (["remove", "wabc"], None),
    ):
        done = invoke(network, *argv)
        assert (done.exit_code, done.stdout) == (0, "wabc\n")
        assert network.asked[-1] == ("/v1/webhooks/wabc", asked)


def test_a_secret_is_replaced(network: Network) -> None:
    """The new one is on stdout, and until when the old one signs on stderr."""
    network.answers.append((200, {"endpoint_id": "wabc", "secret": "x", "until": "2026-01-02", "repeated": False}))
    done = invoke(network, "rotate", "wabc", "--grace", "60")
    assert parse_secret(done.stdout.strip())
    assert "until 2026-01-02" in done.stderr
    assert network.asked == [("/v1/webhooks/wabc:rotate", {"secret": done.stdout.strip(), "grace_s": 60})]


def test_a_test_says_what_came_back(network: Network) -> None:
    """And its exit code."""
    tested = (202, {"endpoint_id": "wabc", "webhook_id": "1f-0"})
    found = DELIVERY | {"position": 0, "state": "delivered", "last_status": 204}
    network.answers.extend([tested, (200, {"deliveries": []}), (200, {"deliveries": [found]})])
    done = invoke(network, "test", "wabc")
    assert (done.exit_code, done.stdout) == (0, "delivered 204\n")
    assert network.asked[1][0] == "/v1/webhooks/wabc/deliveries?until=0"
    network.answers[:] = [tested, (200, {"deliveries": [DELIVERY | {"last_status": 0, "last_problem": "no way"}]})]
    done = invoke(network, "test", "wabc")
    assert isinstance(done.exception, Failure)
    assert "was not delivered: no way" in str(done.exception)
    failed = DELIVERY | {"position": 0, "state": "failed", "last_status": 500, "last_problem": ""}
    network.answers[:] = [tested, (200, {"deliveries": [failed]})]
    done = invoke(network, "test", "wabc")
    assert (done.exit_code, done.stdout) == (1, "failed 500\n")
    assert "was not delivered: it answered 500" in str(done.exception)


def test_deliveries_are_listed(network: Network) -> None:
    """Newest first, as the API gives them."""
    network.answers.append((200, {"deliveries": [DELIVERY, DELIVERY | {"position": 0}]}))
    lines = invoke(network, "deliveries", "wabc", "--state", "waiting").stdout.splitlines()
    assert lines[0].split()[-5:] == ["LAST", "NEXT", "TRY", "PROBLEM", "ID"]
    assert lines[1].split()[:5] == ["1:9", "job.placed.v1", "waiting", "2", "500"]
    assert lines[1].split()[-4:] == ["ago", "in", "0s", "1f-0"]
    assert lines[2].split()[0] == "test"
    assert network.asked[0][0] == "/v1/webhooks/wabc/deliveries?state=waiting&limit=50"


def test_a_range_is_asked_for_again(network: Network) -> None:
    """As it was typed; what it came to is told."""
    network.answers.append((202, {"replay_id": 3, "after": 0, "until": (1 << 40) + 8}))
    done = invoke(network, "replay", "wabc", "--after", "2h ago", "--before", "1:9")
    assert (done.exit_code, done.stdout) == (0, "3\n")
    assert "behind 0:0 up to 1:8" in done.stderr
    assert network.asked == [("/v1/webhooks/wabc:replay", {"after": "2h ago", "before": "1:9"})]


@pytest.mark.parametrize("argv", [["show", "a/b"], ["rotate", ""], ["replay", "a b", "--after", "0"]])
def test_what_can_be_no_id_is_not_asked_for(network: Network, argv: list[str]) -> None:
    """It would be another address."""
    done = invoke(network, *argv)
    assert isinstance(done.exception, Failure)
    assert done.exception.code == ExitCode.USAGE
    assert network.asked == []
