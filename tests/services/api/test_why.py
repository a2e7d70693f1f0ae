"""What would become of a job, over HTTP: passed on to a control plane, and never to the log."""

from typing import get_args

import msgspec

from events.ask import Basis, DryRun, DryRunAsk, Outcome, Tier, Why
from events.base import JobId, Position
from runtime.serve_requests import Served, serving
from services.api import why_schemas
from tests.services.api.cell import SPEC, SUBJECTS, Cell

PATH = "/v1/jobs:dry-run"


async def test_a_dry_run_is_asked_of_a_control_plane(cell: Cell) -> None:
    """With the spec as the gate has checked it; its answer is passed on, and nothing is in the log."""
    end = await cell.log.end()
    heard: list[DryRunAsk] = []

    async def say(_: str, payload: bytes) -> bytes:
        heard.append(msgspec.json.decode(payload, type=DryRunAsk))
        why = Why(job_id=JobId("dry-run"), found=True, position=Position(7), code="promised", basis="promise")
        would = DryRun(
            position=Position(7),
            leader=True,
            outcome=Outcome.PROMISED,
            code="promised",
            nodes={"n1": 2},
            gpus=2,
            why=why,
        )
        return msgspec.json.encode(would)

    async with serving(cell.system, Served(SUBJECTS.dry_run, "dry_run", say, b"")):
        response = await cell.http.post(PATH, json={"spec": SPEC, "team": "red"})
    told = response.json()
    assert (response.status_code, told["outcome"], told["team"], told["nodes"]) == (200, "promised", "red", {"n1": 2})
    assert (told["source"], told["why"]["code"], response.headers["Muster-Position"]) == ("leader", "promised", "7")
    assert (heard[0].team, heard[0].spec.command) == ("red", ("python", "train.py"))
    assert await cell.log.end() == end


async def test_what_submit_refuses_a_dry_run_refuses(cell: Cell) -> None:
    """Before anybody is asked; without a control plane, or with a busy or another one, it says so."""
    for body, told in (({"spec": SPEC | {"gpus": 0}}, "gpus: must be 1"), ({"spec": SPEC, "team": "a.b"}, "team: ")):
        tried, submitted = [await cell.http.post(path, json=body) for path in (PATH, "/v1/jobs")]
        assert (tried.status_code, tried.json()) == (422, submitted.json())
        assert told in tried.json()["detail"]
    alone = await cell.http.post(PATH, json={"spec": SPEC})
    assert (alone.status_code, alone.json()["code"]) == (503, "control_away")
    for answer, code in ((b"", "busy"), (msgspec.json.encode(DryRun(position=Position(7))), "control_differs")):

        async def say(_: str, __: bytes, answer: bytes = answer) -> bytes:
            return answer

        async with serving(cell.system, Served(SUBJECTS.dry_run, "dry_run", say, b"")):
            response = await cell.http.post(PATH, json={"spec": SPEC})
        assert (response.status_code, response.json()["code"]) == (503, code)


def test_what_the_api_may_say_is_what_control_planes_say() -> None:
    """Tiers, bases and outcomes are the same words, and no field of an answer is lost on the way."""
    for words, kinds in ((why_schemas.Tier, Tier), (why_schemas.Basis, Basis), (why_schemas.Outcome, Outcome)):
        assert set(get_args(words)) - {""} == set(kinds)
    said = set(Why.__struct_fields__) - {"found", "leader", "halted"}
    assert said == set(why_schemas.WhyAnswer.model_fields) - {"source", "note"}
    would = set(DryRun.__struct_fields__) - {"leader", "halted"}
    assert would == set(why_schemas.DryRunAnswer.model_fields) - {"source", "team", "estimated_start"}
