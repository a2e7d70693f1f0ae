"""`muster node drain`, `undrain`, `maintain`, `retire`, and a node by its name."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

DRAIN = {
    "cause": "operator", "since": "2026-01-01T10:00:00Z", "by": "api:ada", "reason": "fan", "window": "",
    "deadline": "2099-01-02T14:30:00Z", "drained_at": None,
}  # fmt: skip
WINDOW = {"window": "fans", "starts": "2099-01-02T14:00:00Z", "ends": "2099-01-02T16:00:00Z", "reason": "new", "by": ""}
NODE: dict[str, Any] = {
    "node_id": "n1", "state": "up", "standing": "open", "gpu_type": "h100", "gpus_total": 8, "gpus_used": 8,
    "gpus_free": 0, "gpus_out": 0, "gpus_earmarked": 0, "runs": 3, "drain": None, "windows": [], "retired_at": None,
    "address": "::1", "agent_version": "1.2", "joined_at": "2026-01-01T00:00:00Z", "labels": {"rack": "r1"}, "taints": [],
    "cordoned": False, "silent_s": None, "patience_s": None, "clock_ahead_s": None, "lemon_score": None, "held": [],
    "gpus": [],
}  # fmt: skip
SAID = {"nodes": ["n1"], "position": 9, "repeated": False}


def ask(network: Network, *argv: str) -> str:
    """What the command has on stdout."""
    done = CliRunner().invoke(app, ["node", *argv, "--api-url", network.url])
    assert done.exit_code == 0, (done.stderr, done.exception)
    return done.stdout


def nodes(**changed: Any) -> tuple[int, Any]:
    """An answer with the node as it is now."""
    return 200, {"nodes": [NODE | changed], "position": 9}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"standing": "draining", "drain": DRAIN}, "n1  draining  3 runs, 8 GPUs, until 2099-01-02 14:30 UTC\n"),
        (
            {"standing": "draining", "drain": DRAIN | {"deadline": None}, "runs": 1, "gpus_used": 1},
            "n1  draining  1 run, 1 GPU\n",
        ),
        (
            {"standing": "draining", "drain": DRAIN | {"deadline": "2026-01-01T10:00:00Z"}},
            "n1  draining  3 runs, 8 GPUs, told to stop\n",
        ),
        (
            {"standing": "draining", "state": "lost", "drain": DRAIN, "runs": 0, "gpus_out": 8, "gpus_sick": 2},
            "n1  lost, draining  no run; its GPUs are being cleaned\n",
        ),
        (
            {"standing": "draining", "drain": DRAIN, "runs": 0, "gpus_out": 2, "gpus_sick": 2},
            "n1  draining  nothing\n",
        ),
        ({"standing": "drained", "drain": DRAIN | {"drained_at": "2026-01-01T11:00:00Z"}}, "n1  drained\n"),
    ],
)
def test_a_drain_says_what_is_waited_for(network: Network, changed: dict[str, Any], told: str) -> None:
    """What runs there, and until when it may."""
    network.answers.extend([(200, SAID), nodes(**changed)])
    assert ask(network, "drain", "n1", "--reason", "fan", "--deadline", "30m") == told
    assert network.asked[0] == ("/v1/nodes/drain", {"nodes": ["n1"], "reason": "fan", "deadline": "30m"})
    assert network.headers[0]["muster-operator"]
    assert network.asked[1][0] == "/v1/nodes?min_position=9"


def test_a_label_means_no_node_that_was_retired(network: Network) -> None:
    """Of those that have it."""
    old = NODE | {"node_id": "n0", "retired_at": "2026-01-01T00:00:00Z"}
    network.answers.extend([(200, {"nodes": [old, NODE]}), (200, SAID), nodes()])
    assert ask(network, "undrain", "--label", "rack=r1") == "n1  up\n"
    assert network.asked[1] == ("/v1/nodes/undrain", {"nodes": ["n1"], "reason": ""})


def test_maintenance_is_planned_in_local_time_and_cancelled(network: Network) -> None:
    """A time without a zone is one of this machine's."""
    network.answers.extend([(200, SAID), nodes(windows=[WINDOW])])
    told = ask(network, "maintain", "n1", "--window", "fans", "--from", "2099-01-02T14:00", "--to", "3h")
    assert told == "n1  up  maintenance fans 2099-01-02 14:00 to 2099-01-02 16:00 UTC: new\n"
    body = network.asked[0][1]
    assert (body["window"], body["ends"]) == ("fans", "3h")
    assert body["starts"].startswith("2099-01-02T14:00:00")
    assert len(body["starts"]) > len("2099-01-02T14:00:00")
    network.answers[:] = [nodes(windows=[WINDOW]), (200, SAID), nodes()]
    ask(network, "maintain", "n1", "--cancel", "fans")
    assert network.asked[3] == ("/v1/nodes/maintain", {"nodes": ["n1"], "window": "fans", "reason": "", "cancel": True})


@pytest.mark.parametrize(("window", "warned"), [("fans", False), ("fan", True)])
def test_cancelling_a_window_that_nobody_planned_is_pointed_out(network: Network, window: str, warned: bool) -> None:
    """It is done all the same: the list may be older than the plan."""
    network.answers.extend([nodes(windows=[WINDOW]), (200, SAID), nodes()])
    done = CliRunner().invoke(app, ["node", "maintain", "n1", "--cancel", window, "--api-url", network.url])
    assert done.exit_code == 0
    assert ("no window 'fan' is planned there; there is fans" in done.stderr) is warned


@pytest.mark.parametrize(
    "argv",
    [
        ("drain", "n1"),
        ("retire", "n1"),
        ("drain", "--reason", "fan"),
        ("maintain", "n1"),
        ("maintain", "n1", "--window", "a", "--cancel", "b"),
        ("maintain", "n1", "--window", "a", "--from", "1h"),
        ("a b",),
    ],
)
def test_what_is_not_enough_is_wrong_usage(network: Network, argv: tuple[str, ...]) -> None:
    """Before anything is asked for."""
    done = CliRunner().invoke(app, ["node", *argv, "--api-url", network.url])
    code = done.exception.code if isinstance(done.exception, Failure) else done.exit_code
    assert code == ExitCode.USAGE
    assert network.asked == []


def test_a_name_instead_of_a_command_shows_the_node(network: Network) -> None:
    """What drains it, what is planned, how its clock and its silence were judged, and what runs there."""
    held = {
        "job_id": "jx", "name": "train", "team": "red", "state": "running", "gpus": 4,
        "since": "2026-01-01T00:00:00Z", "ends_by": "2099-01-02T12:00:00Z",
    }  # fmt: skip
    shown = NODE | {
        "standing": "draining", "drain": DRAIN | {"window": "fans"}, "windows": [WINDOW], "state": "lost", "held": [held],
        "clock_ahead_s": -3.0, "silent_s": 95.0, "patience_s": 90.0, "lemon_score": 7,
    }  # fmt: skip
    network.answers.append((200, shown))
    text = ask(network, "n1")
    assert network.asked == [("/v1/nodes/n1", None)]
    for part in (
        "node        n1  lost, draining",
        "3 runs, 8 GPUs, until 2099-01-02 14:30 UTC;",
        "by api:ada: fan; maintenance fans",
        "what runs there still is checkpointed and moved",
        "window      maintenance fans 2099-01-02 14:00 to",
        "silent      for 1m 35s when it was last judged; given up after 1m 30s",
        "clock       3.0 s behind the control plane's",
        "faults      a score of 7",
        "jx   train",
    ):
        assert part in text, (part, text)
    assert json.loads(ask(network, "show", "n1", "--json")) == shown

    network.answers[:] = [
        (200, shown | {"drain": DRAIN | {"drained_at": DRAIN["since"]}, "gpus_out": 2, "gpus_sick": 1})
    ]
    text = ask(network, "n1")
    assert "2 out; 1 sick" in text
    assert "what runs there still" not in text  # nothing does
