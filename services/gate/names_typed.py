"""Names of teams and accounts as people type them in documents."""

from typing import Annotated

from pydantic import BeforeValidator

from services.gate.names import name_problem, near_name, shown
from services.gate.problems import wrong


def name_typed(value: object) -> str:
    """A legal name. Raises what a validator raises, with one that is near."""
    if not isinstance(value, str):
        yaml_word = isinstance(value, bool)
        hint = 'YAML takes a bare yes, no, on or off for something else: "no"' if yaml_word else f'"{value}"'
        raise wrong(f"must be text, not {shown(value)}", f"put quotes around it: {hint}")
    if problem := name_problem(value):
        near = near_name(value, 24)
        raise wrong(problem, f"for example {near}" if near else "")
    return value


NameField = Annotated[str, BeforeValidator(name_typed)]
