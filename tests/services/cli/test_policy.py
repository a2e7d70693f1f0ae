"""`muster policy`: shown, set whole, set field by field."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

DOCUMENT = {"suspect_after": "30s", "lost_after": "90s", "blocking": False, "consolidation": "propose", "promises": 1}
HELD: dict[str, Any] = {"document": DOCUMENT, "position": 7, "by": "", "at": None}
SET: dict[str, Any] = {"position": 9, "changed": True, "changes": ["~ promises: 1 -> 2"], "warnings": []}


def test_fields_are_set_over_the_policy_that_was_read(network: Network) -> None:
    """All others stay as they are; values are read as in a file, names with their unit are the same."""
    network.answers.extend([(200, HELD), (200, SET)])
    pairs = ["promises=2", "lost_after_s=2m", "blocking=true", "consolidation=off"]
    done = CliRunner().invoke(app, ["policy", "set", *pairs, "--api-url", network.url])
    assert (done.exit_code, done.stdout) == (0, "~ promises: 1 -> 2\n")
    changed = {"promises": 2, "lost_after": "2m", "blocking": True, "consolidation": False}
    assert network.asked[1] == ("/v1/policy", DOCUMENT | changed)
    assert network.headers[1]["if-match"] == '"7"'


@pytest.mark.parametrize("pair", ["promises", "=2", "promises=[", ""])
def test_what_is_no_pair_is_wrong_usage(network: Network, pair: str) -> None:
    """Nothing is sent."""
    done = CliRunner().invoke(app, ["policy", "set", pair, "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert done.exception.code is ExitCode.USAGE
    assert network.asked == []


def test_a_field_that_there_is_none_of_is_refused_by_name(network: Network) -> None:
    """By the server, with what was meant; and who set it meanwhile is told."""
    told = {"code": "invalid", "detail": "promise: there is no such field", "hint": "did you mean promises?"}
    network.answers.extend([(200, HELD), (422, told)])
    done = CliRunner().invoke(app, ["policy", "set", "promise=2", "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert str(done.exception) == "policy set: promise: there is no such field [invalid]"
    assert done.exception.hint == "did you mean promises?"


def test_a_file_is_applied_whole(network: Network, tmp_path: Path) -> None:
    """What it leaves out is not sent: it has its default."""
    (tmp_path / "p.yaml").write_text("order: fifo\npromises: -1\n")
    network.answers.extend([(200, HELD), (422, {"code": "invalid", "detail": "promises: must be 0 or more, not -1"})])
    done = CliRunner().invoke(app, ["policy", "apply", str(tmp_path / "p.yaml"), "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert str(done.exception).startswith(f"{tmp_path / 'p.yaml'}:2: promises: must be 0 or more")
    assert network.asked[1] == ("/v1/policy", {"order": "fifo", "promises": -1})


def test_the_policy_is_shown(network: Network) -> None:
    """With every field, as it is typed."""
    network.answers.append((200, HELD))
    table, file = (
        CliRunner().invoke(app, ["policy", "show", *options, "--api-url", network.url]).stdout
        for options in ([], ["--file"])
    )
    assert ["blocking", "false"] in [line.split() for line in table.splitlines()]
    assert yaml.safe_load(file) == DOCUMENT
