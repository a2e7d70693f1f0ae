"""`muster credits accounts` and `prices`: the files, and what they go over."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import Failure
from tests.services.cli.network import Network

DOCUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "accounts": ("/v1/credits/document", {"accounts": [{"name": "red", "queues": ["vision"], "overdraft": 500}]}),
    "prices": ("/v1/credits/prices", {"lists": [{"gpu_hour": {"h100": 2.5, "*": 1}}]}),
}
SET: dict[str, Any] = {"position": 9, "changed": True, "changes": ["+ red"], "warnings": ["red pays for nobody"]}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_file_is_applied_over_the_document_that_holds(network: Network, tmp_path: Path, name: str) -> None:
    """What changes is on stdout; who asked is said; a dry run says that it was one."""
    path, document = DOCUMENTS[name]
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(document))
    network.answers.extend([(200, {"document": {}, "position": 7}), (200, SET)] * 2)
    done = CliRunner().invoke(app, ["credits", name, "apply", str(file), "--api-url", network.url])
    assert (done.exit_code, done.stdout) == (0, "+ red\n")
    assert "warning: red pays for nobody" in done.stderr
    assert f"muster: {name}: set, at position 0:9" in done.stderr
    assert network.asked == [(path, None), (path, document)]
    assert (network.headers[1]["if-match"], bool(network.headers[1]["muster-operator"])) == ('"7"', True)
    done = CliRunner().invoke(app, ["credits", name, "apply", str(file), "--dry-run", "--api-url", network.url])
    assert "nothing was written" in done.stderr


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_document_is_shown_as_a_file_that_can_be_applied(network: Network, name: str) -> None:
    """And as JSON, with its position."""
    path, document = DOCUMENTS[name]
    held = {"document": document, "position": 7, "by": "api:ada", "at": "2026-03-14T15:09:26Z"}
    network.answers.append((200, held))
    done = CliRunner().invoke(app, ["credits", name, "show", "--api-url", network.url])
    assert yaml.safe_load(done.stdout) == document
    assert f"muster credits {name} apply FILE --over 0:7" in done.stdout.splitlines()[0]
    done = CliRunner().invoke(app, ["credits", name, "show", "--json", "--api-url", network.url])
    assert json.loads(done.stdout) == held
    assert {asked for asked, _ in network.asked} == {path}


def test_a_refusal_names_the_line(network: Network, tmp_path: Path) -> None:
    """Where an editor looks for it."""
    file = tmp_path / "accounts.yaml"
    file.write_text("accounts:\n  - name: red\n    overdarft: 5\n")
    refused = {
        "code": "invalid",
        "detail": "accounts.0.overdarft: there is no such field",
        "hint": "did you mean overdraft?",
    }
    network.answers.extend([(200, {"document": {}, "position": 7}), (422, refused)])
    done = CliRunner().invoke(app, ["credits", "accounts", "apply", str(file), "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert str(done.exception) == f"{file}:3: accounts.0.overdarft: there is no such field [invalid]"
