"""Sentences about what is wrong with a document: place, value, and the nearest thing that is right."""

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from events.ask import Refused
from services.gate.problems import PROBLEMS_MAX, refusal_of


class Inner(BaseModel):
    """A part."""

    model_config = ConfigDict(extra="forbid", strict=True)

    size: int = Field(1, ge=1, le=9)


class Outer(BaseModel):
    """A document with a part."""

    model_config = ConfigDict(extra="forbid", strict=True)

    command: str = Field(description="What runs.")
    inner: Inner | None = None


def told(document: object) -> Refused:
    """What is said about a document."""
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(document)
    return refusal_of(caught.value, Outer)


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        ({}, "command: is missing", "command: What runs."),
        ({"command": "x", "cmd": "y"}, "cmd: there is no such field", "did you mean command?"),
        ({"cmd": "y"}, "cmd: there is no such field; command: is missing", "did you mean command?"),
        ({"command": "x", "iner": {}}, "iner: there is no such field", "did you mean inner?"),
        ({"command": "x", "zz": 1}, "zz: there is no such field", "the fields are command, inner"),
        ({"command": "x", "inner": {"sise": 1}}, "inner.sise: there is no such field", "did you mean size?"),
        ({"command": "x", "inner": {"size": 0}}, "inner.size: must be 1 or more, not 0", ""),
        ({"command": "x", "inner": {"size": 10}}, "inner.size: must be 9 or less, not 10", ""),
        ({"command": "x", "inner": {"size": None}}, "inner.size: must be a whole number, not null", ""),
    ],
)
def test_a_problem_is_told_with_its_place(document: object, message: str, hint: str) -> None:
    """And with a hint where something near is right."""
    refused = told(document)
    assert (refused.message, refused.hint) == (message, hint)


def test_what_is_shown_of_a_value_is_bounded() -> None:
    """A large value does not come back whole."""
    assert len(told({"command": ["x" * 1_000]}).message) < 200
    assert PROBLEMS_MAX == 5
