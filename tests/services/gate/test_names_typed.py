"""Names as YAML gives them."""

import pytest
from pydantic_core import PydanticCustomError

from services.gate.names_typed import name_typed


def test_a_legal_name_is_taken_as_it_is() -> None:
    """Nothing is put right in silence."""
    assert name_typed("vision-2026") == "vision-2026"


@pytest.mark.parametrize(
    ("value", "told", "hint"),
    [
        (7, "must be text, not 7", 'put quotes around it: "7"'),
        (False, "must be text, not false", "put quotes around it: YAML takes a bare yes, no, on or off"),
        ("Vision", "'Vision' has capital letters", "for example vision"),
        ("", "is empty", ""),
        ("x" * 25, "has 25 characters", "for example xxx"),
    ],
)
def test_what_is_no_name_is_told_with_one_that_is(value: object, told: str, hint: str) -> None:
    """As everywhere."""
    with pytest.raises(PydanticCustomError) as raised:
        name_typed(value)
    assert told in str(raised.value)
    assert raised.value.context is not None
    assert str(raised.value.context["hint"]).startswith(hint)
