"""`muster node`: by name or by label, all or nothing."""

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

NODES = {
    "nodes": [
        {"node_id": "node-1", "labels": {"rack": "r1", "kind": "a"}},
        {"node_id": "node-2", "labels": {"rack": "r1"}},
        {"node_id": "node-3", "labels": {}},
    ]
}


def test_nodes_are_cordoned_by_name(network: Network) -> None:
    """In one call; their names are on stdout."""
    network.answers.append((200, {"nodes": ["node-1", "node-2"], "position": 9, "repeated": False}))
    argv = ["node", "cordon", "node-2", "node-1", "node-2", "--reason", "fan", "--api-url", network.url]
    done = CliRunner().invoke(app, argv)
    assert (done.exit_code, done.stdout) == (0, "node-1\nnode-2\n")
    assert "cordon: 2 nodes, at position 0:9" in done.stderr
    assert network.asked == [("/v1/nodes:cordon", {"nodes": ["node-2", "node-1"], "reason": "fan"})]
    assert network.headers[0]["muster-operator"]


def test_many_are_found_by_their_labels(network: Network) -> None:
    """Those that have all of them; `uncordon` takes the same."""
    said = {"nodes": ["node-1"], "position": 9, "repeated": True}
    network.answers.extend([(200, NODES), (200, said)])
    argv = ["node", "uncordon", "--label", "rack=r1", "-l", "kind=a", "--api-url", network.url]
    done = CliRunner().invoke(app, argv)
    assert network.asked[1] == ("/v1/nodes:uncordon", {"nodes": ["node-1"], "reason": ""})
    assert "was so already: nothing was written" in done.stderr


def test_an_unknown_node_is_not_found_with_near_names(network: Network) -> None:
    """As the server says it."""
    told = {"code": "node_not_found", "detail": "node_ids: no node 'nod-1'", "hint": "did you mean node-1?"}
    network.answers.append((404, told))
    done = CliRunner().invoke(app, ["node", "cordon", "nod-1", "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, done.exception.hint) == (ExitCode.NOT_FOUND, "did you mean node-1?")


BOTH = "labels that are repeated mean the nodes with all of them: say it once for each value"


@pytest.mark.parametrize(
    ("argv", "code", "hint"),
    [
        ([], ExitCode.USAGE, ""),
        (["node-1", "--label", "rack=r1"], ExitCode.USAGE, ""),
        (["--label", "rack"], ExitCode.USAGE, ""),
        (["-l", "rack=r1", "-l", "rack=r2"], ExitCode.USAGE, BOTH),
        (["--label", "rack=r9"], ExitCode.NOT_FOUND, "there are kind=a, rack=r1"),
    ],
)
def test_what_means_no_node_is_said(network: Network, argv: list[str], code: ExitCode, hint: str) -> None:
    """Before anything is asked for."""
    network.answers.append((200, NODES))
    done = CliRunner().invoke(app, ["node", "cordon", *argv, "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, done.exception.hint) == (code, hint)
    assert all(path == "/v1/nodes" for path, _ in network.asked)
