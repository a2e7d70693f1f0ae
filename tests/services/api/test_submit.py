"""Submitting and cancelling over HTTP: once, whole, or refused with a reason and nothing written."""

import asyncio
from typing import Any

from events.base import Position
from tests.services.api.cell import SPEC, Cell


async def test_what_was_submitted_can_be_read(cell: Cell) -> None:
    """With the position of the answer a read never comes too early."""
    answer = await cell.submit("k")
    assert set(answer) == {"job_id", "team", "key", "position", "repeated"}
    assert (answer["team"], answer["key"], answer["repeated"]) == ("default", "k", False)
    job = await cell.get(f"/v1/jobs/{answer['job_id']}", min_position=answer["position"])
    assert (job["state"], job["reason"], job["submitted_by"]) == ("queued", "not_evaluated", "api:default")
    assert job["spec"]["command"] == ["python", "train.py"]
    assert job["submitted_position"] == answer["position"]


async def test_a_key_is_one_job_however_it_is_given(cell: Cell) -> None:
    """In the body or in the header, one after the other or at once; without one, each ask is a new job."""
    first = await cell.submit("k")
    header = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(
        *(cell.http.post("/v1/jobs", json={"spec": SPEC}, headers=header) for _ in range(20))
    )
    assert {answer.json()["job_id"] for answer in answers} == {first["job_id"]}
    assert all(answer.json()["repeated"] for answer in answers)
    assert len({(await cell.submit())["job_id"] for _ in range(3)}) == 3


async def test_another_spec_under_a_key_is_a_conflict_that_names_the_job(cell: Cell) -> None:
    """409, as a problem document."""
    first = await cell.submit("k")
    response = await cell.http.post("/v1/jobs", json={"key": "k", "spec": SPEC | {"gpus": 1}})
    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["code"], problem["job_id"], problem["status"]) == ("conflict", first["job_id"], 409)
    assert problem["hint"]


WRONG: tuple[tuple[Any, int, str, str], ...] = (
    ({"spec": SPEC | {"gpu": 8}}, 422, "invalid", "gpu: there is no such field"),
    ({"spec": SPEC | {"gpus": 0}}, 422, "invalid", "gpus: must be 1 or more, not 0"),
    ({"spec": SPEC | {"name": "a b"}}, 422, "invalid", "name: 'a b' has a space"),
    ({"spec": {}}, 422, "invalid", "command: is missing"),
    ({"spec": SPEC, "team": "a.b"}, 422, "invalid", "team: 'a.b' has a dot"),
    ({"spec": SPEC | {"team": "red"}, "team": "blue"}, 403, "forbidden", "team: the spec names 'red'"),
    ({"spec": SPEC, "kee": "k"}, 422, "invalid", "kee: Extra inputs are not permitted"),
    ({"spec": "x"}, 422, "invalid", "spec: must be a JSON object, not 'x'"),
    ({}, 422, "invalid", "spec: Field required"),
    ([], 422, "invalid", "body"),
    ({"spec": SPEC | {"env": {"A": "x" * 100_000}}}, 413, "too_large", "65536 is the most"),
    ({"spec": SPEC | {"env": {"A": "x" * 10_000_000}}}, 413, "too_large", "the body is larger than"),
)


async def test_what_is_wrong_is_a_problem_document_and_leaves_no_trace(cell: Cell) -> None:
    """Status, stable code, a sentence; and the log ends where it did."""
    before = await cell.log.end()
    for body, status, code, told in WRONG:
        response = await cell.http.post("/v1/jobs", json=body)
        problem = response.json()
        assert (response.status_code, problem["status"], problem["code"]) == (status, status, code), told
        assert told in problem["detail"]
    assert await cell.log.end() == before


async def test_bytes_that_are_no_json_are_refused(cell: Cell) -> None:
    """Also without a length, deep, or larger than may be."""

    async def endless() -> Any:
        for _ in range(10):
            yield b"x" * 100_000

    for content, status in ((b"{", 422), (b"[" * 50_000, 400), (b"\xff", 400), (endless(), 413)):
        response = await cell.http.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        assert response.status_code == status, response.text
        assert response.json()["code"] in {"invalid", "too_large"}


async def test_many_are_answered_each_for_itself(cell: Cell) -> None:
    """What is wrong with one is no matter of the others."""
    jobs = [{"key": f"k{n}", "spec": SPEC | ({"gpus": 0} if n == 3 else {})} for n in range(10)]
    response = await cell.http.post("/v1/jobs:batch", json={"team": "red", "jobs": jobs})
    answer = response.json()
    assert (response.status_code, answer["accepted"], answer["refused"]) == (200, 9, 1)
    assert [job["key"] for job in answer["jobs"]] == [f"k{n}" for n in range(10)]
    assert answer["jobs"][3]["problem"]["code"] == "invalid"
    assert len({job["position"] for job in answer["jobs"]}) == 10
    many = {"jobs": [{"spec": SPEC}] * 1_001}
    assert (await cell.http.post("/v1/jobs:batch", json=many)).status_code == 422


async def test_a_job_is_cancelled_by_its_team_alone(cell: Cell) -> None:
    """Known by id or the beginning of it; another team's is not found."""
    job_id = (answer := await cell.submit("k", team="red"))["job_id"]
    await cell.get(f"/v1/jobs/{job_id}", min_position=answer["position"])
    for shown in (job_id, job_id[:6]):
        other = await cell.http.post(f"/v1/jobs/{shown}:cancel", headers={"Muster-Team": "blue"})
        assert (other.status_code, other.json()["code"]) == (404, "not_found")
    first = await cell.http.post(f"/v1/jobs/{job_id[:6]}:cancel", json={"reason": "typo"})
    again = await cell.http.post(f"/v1/jobs/{job_id}:cancel")
    assert (first.status_code, first.json()["team"], first.json()["job_id"]) == (200, "red", job_id)
    assert (again.json()["repeated"], again.json()["position"]) == (True, first.json()["position"])
    job = await cell.get(f"/v1/jobs/{job_id}", min_position=first.json()["position"])
    assert job["cancel_reason"] == "typo"


async def test_a_job_that_the_tables_do_not_know_yet_can_be_cancelled(cell: Cell) -> None:
    """The log knows it, and that is what counts."""
    job_id = (await cell.submit("k"))["job_id"]
    assert (await cell.http.post(f"/v1/jobs/{job_id}:cancel")).status_code == 200
    assert (await cell.http.post("/v1/jobs/jaaaaaaaaaaaaa:cancel")).status_code == 404
    await cell.get("/v1/jobs", min_position=await cell.log.end())
    assert (await cell.http.post("/v1/jobs/nothing:cancel")).status_code == 404
    assert cell.gate.answers["cancel", "accepted"] == 1


async def test_nothing_that_a_team_sends_makes_credits(cell: Cell) -> None:
    """What it may name is the account that pays; all else about credits is no field of what it sends, and leaves no trace."""
    forged: tuple[dict[str, Any], ...] = (
        {"credits": "1000"}, {"ask": "grant", "account": "red", "credits": "1000"}, {"accounts": [{"name": "red"}]},
        {"overdraft": "unlimited"}, {"type": "musterbook.credit.granted.v1", "amount_micro": 1000},
    )  # fmt: skip
    before = await cell.log.end()
    for more in forged:
        for body in ({"key": "k", "spec": SPEC | more}, {"key": "k", "spec": SPEC} | more):
            assert (await cell.http.post("/v1/jobs", json=body)).status_code == 422
            batch = await cell.http.post("/v1/jobs:batch", json={"jobs": [body]})
            assert batch.status_code == 422 or batch.json()["jobs"][0]["problem"]["code"] == "invalid"
    assert await cell.log.end() == before
    job = await cell.submit("k", account="red")
    await cell.http.post(f"/v1/jobs/{job['job_id']}:cancel", json={"reason": "grant"})
    written = [await cell.log.read(Position(at)) for at in range(before + 1, await cell.log.end() + 1)]
    assert [one.subject for one in written if one is not None] == [f"intake.default.{job['job_id']}"] * 2
