"""Files as people type them: what is wrong begins with the field, so that its line can be found."""

import pytest
from pydantic import Field

from events.policy import JobOrder
from services.simulate.engine import BEGIN
from services.simulate.fault import BadFile
from services.simulate.typed import Typed, checked, policy_of, queues_of


class Inner(Typed):
    """A part."""

    kind: str = Field("", alias="class")


class Outer(Typed):
    """A file."""

    name: str
    parts: list[Inner] = Field(default_factory=list)


def test_a_file_becomes_its_model_and_no_field_is_read_over() -> None:
    """A misspelt one is guessed, by the name that it has in the file."""
    assert checked({"name": "x", "parts": [{"class": "a"}]}, Outer).parts[0].kind == "a"
    with pytest.raises(BadFile) as bad:
        checked({"name": "x", "parts": [{"clas": "a"}]}, Outer)
    assert (bad.value.reason, bad.value.hint) == ("parts.0.clas: there is no such field", "did you mean class?")


def test_queues_and_policy_are_those_of_operators() -> None:
    """With the field that they stand in, where they are a part of a file."""
    assert policy_of({"order": "sjf"}, BEGIN).order is JobOrder.SJF
    assert [queue.name for queue in queues_of({"queues": [{"name": "a"}]}, BEGIN).queues] == ["a"]
    for within, said in (("", "orders: there"), ("policy", "policy.orders: there")):
        with pytest.raises(BadFile, match=said):
            policy_of({"orders": "sjf"}, BEGIN, within=within)
    with pytest.raises(BadFile, match=r"^queues\.0\.weight"):
        queues_of({"queues": [{"name": "a", "weight": -1}]}, BEGIN)
