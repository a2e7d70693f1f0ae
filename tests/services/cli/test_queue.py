"""`muster queue`: the file, the position that it goes over, what comes of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

FILE = """\
queues:
  - name: research
    weight: 5
    children:
      - name: vision
        wieght: 3
"""
TREE = {
    "queues": [
        {
            "name": "research",
            "weight": 5,
            "limit": 512,
            "children": [
                {"name": "vision", "weight": 3, "floor": 64, "gpu_types": {"h100": {"floor": 32}}, "stop": "pause"}
            ],
        }
    ]
}
HELD: dict[str, Any] = {"document": TREE, "position": 7, "by": "api:ada", "at": "2026-03-14T15:09:26Z"}
SET: dict[str, Any] = {"position": 9, "changed": True, "changes": ["~ vision: floor 64 -> 32"], "warnings": []}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A queue file."""
    (tmp_path / "queues.yaml").write_text(FILE)
    return str(tmp_path / "queues.yaml")


def test_a_file_is_applied_over_the_document_that_holds(network: Network, file: str) -> None:
    """What changes is on stdout, that it was set on stderr; an answer that is lost is asked for again."""
    network.answers.extend(
        [(200, HELD), (-1, None), (200, SET | {"warnings": ["floors at the root add up to 3 GPUs"]})]
    )
    done = CliRunner().invoke(app, ["queue", "apply", file, "--api-url", network.url])
    assert (done.exit_code, done.stdout) == (0, "~ vision: floor 64 -> 32\n")
    assert "muster: warning: floors at the root add up to 3 GPUs" in done.stderr
    assert "muster: queues: set, at position 0:9" in done.stderr
    assert network.asked[1] == network.asked[2] == ("/v1/queues/document", yaml.safe_load(FILE))
    assert {network.headers[n]["if-match"] for n in (1, 2)} == {'"7"'}
    assert network.headers[1]["muster-operator"]


def test_a_file_that_was_edited_goes_over_what_it_was_made_from(network: Network, file: str) -> None:
    """And over nothing that came since: who it was is said, and nothing was written."""
    moved = {"code": "moved", "detail": "queues: not the document that this was made from: by api:eve", "hint": "look"}
    network.answers.extend([(412, moved), (412, moved)])
    for typed in ("5", "0:5"):
        done = CliRunner().invoke(app, ["queue", "apply", file, "--over", typed, "--api-url", network.url])
        assert isinstance(done.exception, Failure)
        assert done.exception.code is ExitCode.REFUSED
        assert "by api:eve [moved]" in str(done.exception)
    assert [headers["if-match"] for headers in network.headers] == ['"5"', '"5"']
    done = CliRunner().invoke(app, ["queue", "apply", file, "--over", "five", "--api-url", network.url])
    assert (done.exit_code, "1:27 is record 27" in " ".join(done.stderr.split())) == (2, True)


def test_a_refusal_names_every_line(network: Network, file: str) -> None:
    """That of the first where an editor looks for it, the others in the text."""
    detail = "queues.0.children.0.wieght: there is no such field; queues.0.weight: must be 0 or more, not -1"
    network.answers.extend([(200, HELD), (422, {"code": "invalid", "detail": detail, "hint": "did you mean weight?"})])
    done = CliRunner().invoke(app, ["queue", "apply", file, "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert str(done.exception) == (
        f"{file}:6: queues.0.children.0.wieght: there is no such field; "
        "line 3: queues.0.weight: must be 0 or more, not -1 [invalid]"
    )
    assert done.exception.hint == "did you mean weight?"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("queues:\n  - {name: a\n", ":3", "not YAML"),
        ("queues: []\nqueues: []\n", ":2", "queues is given twice"),
        ("queues:\n  - name: a\n    limit: 1\n    limit: 2\n", ":4", "queues.0.limit is given twice"),
        ("- name: a\n", "", "a queue file is a mapping, this is a list"),
        ("", "", "a queue file is a mapping, this is empty"),
        ("a: " + "x" * 300_000, "", "a queue file has at most 256 KiB"),
    ],
)
def test_what_is_no_document_is_refused_before_anything_is_sent(
    network: Network, tmp_path: Path, text: str, place: str, told: str
) -> None:
    """With the line where there is one."""
    file = tmp_path / "q.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["queue", "apply", str(file), "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert str(done.exception).startswith(f"{file}{place}: {told}")
    assert network.asked == []


def test_a_dry_run_says_what_would_change(network: Network, file: str) -> None:
    """And that nothing was written; --json is the answer."""
    network.answers.extend([(200, HELD), (200, SET | {"changed": False})])
    done = CliRunner().invoke(app, ["queue", "apply", file, "--dry-run", "--json", "--api-url", network.url])
    assert json.loads(done.stdout) == SET | {"changed": False}
    assert "queues: nothing was written" in done.stderr
    assert network.asked[1][0] == "/v1/queues/document?dry_run=true"


def test_the_same_file_again_says_so(network: Network, file: str) -> None:
    """Exit 0: it is as the file says."""
    network.answers.extend([(200, HELD), (200, SET | {"changed": False, "changes": []})])
    done = CliRunner().invoke(app, ["queue", "apply", file, "--api-url", network.url])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "as it was, since position 0:9: nothing was written" in done.stderr


def test_the_tree_is_shown(network: Network) -> None:
    """As a table, as a file that can be applied, as JSON."""
    network.answers.append((200, HELD))
    table, file, document = (
        CliRunner().invoke(app, ["queue", "show", *options, "--api-url", network.url]).stdout
        for options in ([], ["--file"], ["--json"])
    )
    rows = [line.split() for line in table.splitlines()]
    assert rows[0][:4] == ["QUEUE", "WEIGHT", "FLOOR", "LIMIT"]
    assert rows[1][:4] == ["research", "5", "-", "512"]
    assert rows[2][:4] == ["vision", "3", "64", "-"]
    assert rows[2][-2:] == ["best_effort", "pause"]
    assert rows[3][:3] == ["[h100]", "-", "32"]
    assert yaml.safe_load(file) == TREE
    assert "--over 0:7" in file
    assert json.loads(document) == HELD
