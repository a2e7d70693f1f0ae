"""Errors of the API as problem documents (RFC 9457): a stable code, a sentence, a hint."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from events.ask import Accepted, Answer, RefusalCode, Refused
from services.api.schemas import Problem
from services.gate.names import shown

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
STATUS: Final = {
    RefusalCode.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    RefusalCode.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    RefusalCode.CONFLICT: HTTPStatus.CONFLICT,
    RefusalCode.MOVED: HTTPStatus.PRECONDITION_FAILED,
    RefusalCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    RefusalCode.FORBIDDEN: HTTPStatus.FORBIDDEN,
    RefusalCode.STALE: HTTPStatus.CONFLICT,
    RefusalCode.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    RefusalCode.UNKNOWN: HTTPStatus.SERVICE_UNAVAILABLE,
}
OBJECTS: Final = frozenset({"dict_type", "model_type", "model_attributes_type"})  # pydantic's names for it
MONTH: Final = "^[0-9]{4}-(0[1-9]|1[0-2])$"  # a pattern is no sentence: people are told what it means
CODES: Final = {404: "no_such_address", 405: "method_not_allowed", 413: "too_large", 400: "invalid"}


class Troubled(Exception):
    """A request that cannot be answered as it was meant."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def trouble(status: HTTPStatus, code: str, detail: str, hint: str = "", **more: Any) -> Troubled:
    """What to raise: a problem with a stable `code`, a sentence, and what to do."""
    problem = Problem(title=status.phrase, status=status, code=code, detail=detail, hint=hint, **more)
    return Troubled(problem)


def problem_of(refused: Refused) -> Problem:
    """The document of what the gate refused."""
    status = STATUS[refused.code]
    return Problem(
        title=status.phrase,
        status=status,
        code=refused.code.value,
        detail=refused.message,
        hint=refused.hint,
        job_id=refused.job_id,
        position=refused.position if refused.code is RefusalCode.MOVED else None,
    )


def accepted(answer: Answer) -> Accepted:
    """The answer of the gate, if it is good. Raises `Troubled`."""
    if isinstance(answer, Refused):
        raise Troubled(problem_of(answer))
    return answer


def respond(problem: Problem) -> Response:
    """The document as a response. A client that may try again is told when."""
    headers: dict[str, str] = {}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if problem.code == RefusalCode.MOVED:
        headers["ETag"] = f'"{problem.position}"'
    return JSONResponse(
        problem.model_dump(exclude_none=True), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers
    )


def install(app: FastAPI) -> None:
    """Every error of the app is a problem document."""

    @app.exception_handler(Troubled)
    async def troubled(_: Request, error: Troubled) -> Response:
        return respond(error.problem)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return respond(_invalid(error.errors()))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        status = HTTPStatus(error.status_code)
        detail = f"{request.method} {request.url.path}: {error.detail}"
        hint = "/docs lists what there is" if status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED} else ""
        code = CODES.get(error.status_code, "refused")
        return respond(Problem(title=status.phrase, status=status, code=code, detail=detail, hint=hint))


def _invalid(errors: Sequence[Any]) -> Problem:
    """What FastAPI found wrong with a request: place, problem and value, the first few of them."""
    told = [_told(error) for error in list(errors)[:5]]
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return Problem(title=status.phrase, status=status, code=RefusalCode.INVALID.value, detail="; ".join(told))


def _told(error: Any) -> str:  # noqa: ANN401 - pydantic's own
    if error["type"] == "json_invalid":
        return f"the body is no JSON: {error.get('ctx', {}).get('error', error['msg'])} (at byte {error['loc'][-1]})"
    parts = [str(part) for part in error["loc"][1:] if not isinstance(part, int)]  # not the place in a list
    place = ".".join(parts) or f"the {error['loc'][0]}"
    problem = (
        "must be a JSON object" if error["type"] in OBJECTS else error["msg"].replace("Input should be", "must be")
    )
    given = error.get("input")
    if error.get("ctx", {}).get("pattern") == MONTH:
        return f"{place}: {shown(given)} is no month: 2026-11 is one"
    return f"{place}: {problem}" + (f", not {shown(given)}" if _is_short(given) else "")


def _is_short(value: object) -> bool:
    return isinstance(value, str | int | float | bool)
