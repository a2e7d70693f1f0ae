"""What documents have in common on the command line: sentences, files, and who asks."""

import getpass

import pytest
import yaml

from services.cli import standing
from services.cli.specfile import Spec
from services.cli.standing import as_file, sentences, where


def test_a_refusal_is_taken_apart_where_a_place_begins() -> None:
    """A semicolon in a sentence, or in a value, ends none."""
    told = "queues.0.name: 'a; b' has a space; a name is 1 to 24; queues.1.gpu_types.h100 80gb.floor: is 5; and 2 more"
    assert sentences(told) == [
        "queues.0.name: 'a; b' has a space; a name is 1 to 24",
        "queues.1.gpu_types.h100 80gb.floor: is 5; and 2 more",
    ]
    assert sentences("the body is no JSON") == ["the body is no JSON"]


def test_a_sentence_leads_to_its_line() -> None:
    """That of the innermost part of its place which is in the file; GPU types have spaces and dots."""
    lines = {"queues": 1, "queues.0": 2, "queues.0.gpu_types": 5, "queues.0.gpu_types.h100 80.gb": 6}
    spec = Spec({}, "q.yaml", lines)
    for told, place in (
        ("queues.0.gpu_types.h100 80.gb.floor: is 5", "q.yaml:6"),
        ("queues.0.name: is missing", "q.yaml:2"),
        ("queues: is missing", "q.yaml:1"),
        ("lost_after: must be more", "q.yaml"),
        ("the body is no JSON", "q.yaml"),
    ):
        assert where(spec, told) == place


def test_a_document_is_shown_as_a_file_that_says_over_what_it_goes() -> None:
    """A comment for people, and YAML."""
    found = {"position": 7, "document": {"consolidation": "off", "order": "fair"}}
    text = "\n".join(as_file(found, "policy"))
    assert text.startswith("# Position 0:7. After editing: muster policy apply FILE --over 0:7\n")
    assert yaml.safe_load(text) == found["document"]


def test_who_asks_is_who_is_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """In letters that the API takes; a container may have no such user."""
    monkeypatch.setattr(getpass, "getuser", lambda: "Ada Lovelace/ops")
    assert standing.operator() == "Ada-Lovelace-ops"

    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert standing.operator() == "operator"
