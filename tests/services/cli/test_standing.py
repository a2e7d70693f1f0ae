"""What documents have in common on the command line: sentences, files, and who asks."""

import getpass

import pytest
import yaml

from services.cli import standing
from services.cli.standing import as_file, sentences


def test_a_refusal_is_taken_apart_where_a_place_begins() -> None:
    """A semicolon in a sentence, or in a value, ends none."""
    told = "queues.0.name: 'a; b' has a space; a name is 1 to 24; queues.1.gpu_types.h100 80gb.floor: is 5; and 2 more"
    assert sentences(told) == [
        "queues.0.name: 'a; b' has a space; a name is 1 to 24",
        "queues.1.gpu_types.h100 80gb.floor: is 5; and 2 more",
    ]
    assert sentences("the body is no JSON") == ["the body is no JSON"]


def test_a_document_is_shown_as_a_file_that_says_over_what_it_goes() -> None:
    """A comment for people, and YAML."""
    found = {"position": 7, "document": {"consolidation": "off", "order": "fair"}}
    text = "\n".join(as_file(found, "policy"))
    assert text.startswith("# Position 7. After editing: muster policy apply FILE --over 7\n")
    assert yaml.safe_load(text) == found["document"]


def test_who_asks_is_who_is_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """In letters that the API takes; a container may have no such user."""
    monkeypatch.setattr(getpass, "getuser", lambda: "Ada Lovelace/ops")
    assert standing.operator() == "Ada-Lovelace-ops"

    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert standing.operator() == "operator"
