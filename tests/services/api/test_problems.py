"""Errors as problem documents: every refusal of the gate has a status, and its code is what programs see."""

from http import HTTPStatus

import pytest

from events.ask import Accepted, RefusalCode, Refused
from events.base import Position
from services.api.problems import MEDIA_TYPE, STATUS, Troubled, accepted, problem_of, respond


@pytest.mark.parametrize("code", list(RefusalCode))
def test_every_refusal_has_a_status(code: RefusalCode) -> None:
    """One that tells clients whether to try again."""
    problem = problem_of(Refused(code=code, message="m", hint="h"))
    assert (problem.status, problem.code, problem.detail, problem.hint) == (STATUS[code], code, "m", "h")
    again = respond(problem)
    assert again.media_type == MEDIA_TYPE
    assert ("retry-after" in again.headers) == (code in {RefusalCode.BUSY, RefusalCode.UNKNOWN})


def test_a_refusal_is_raised_and_an_acceptance_passed_on() -> None:
    """So that routes go straight on."""
    assert accepted(Accepted(position=Position(7))).position == 7
    with pytest.raises(Troubled) as caught:
        accepted(Refused(code=RefusalCode.NOT_FOUND, message="m"))
    assert caught.value.problem.status == HTTPStatus.NOT_FOUND
