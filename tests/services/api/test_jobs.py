"""Reading jobs over HTTP: the list and its pages, one job, its timeline, and why it waits."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest

from events.ask import Why, WhyAsk
from events.base import JobId, Position
from events.job import JobCancelled
from runtime.serve_requests import Served, serving
from tests.services.api.cell import CLOCK, NODE, SUBJECTS, TEAM, Cell


async def test_the_life_of_a_job_shows(cell: Cell) -> None:
    """From queued to succeeded, with where it ran and when."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    running = await cell.get(f"/v1/jobs/{job_id}", min_position=await cell.run(job_id))
    assert (running["state"], running["attempt"], running["node_ids"]) == ("running", 1, [NODE])
    assert (running["run_id"], running["nodes"], running["reason"]) == (f"{job_id}-1", 1, "")
    assert running["started_at"]
    assert running["ended_at"] is None
    ended = await cell.get(f"/v1/jobs/{job_id}", min_position=await cell.succeed(job_id))
    assert (ended["state"], ended["exit_code"], ended["reason"]) == ("succeeded", 0, "")
    assert ended["ended_at"]


async def test_a_failure_says_why(cell: Cell) -> None:
    """Cause, exit code and node."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    await cell.run(job_id)
    job = await cell.get(f"/v1/jobs/{job_id}", min_position=await cell.fail(job_id))
    assert (job["state"], job["reason"], job["exit_code"], job["failed_node"]) == ("failed", "rank_failed", 3, NODE)
    why = await cell.get(f"/v1/jobs/{job_id}/why")
    assert (why["source"], why["note"]) == ("tables", "")
    assert "rank failed, exit code 3, on node-1" in why["message"]


async def test_a_cancel_says_why(cell: Cell) -> None:
    """In the words of whoever asked for it, if any."""
    for key, reason in (("k", "too slow"), ("l", "")):
        job_id = JobId((await cell.submit(key))["job_id"])
        asked = await cell.http.post(f"/v1/jobs/{job_id}:cancel", json={"reason": reason})
        assert asked.status_code == 200
        await cell.decide(JobCancelled(at=CLOCK.now(), team=TEAM, job_id=job_id))
        why = await cell.get(f"/v1/jobs/{job_id}/why", min_position=await cell.log.end())
        assert why["message"].startswith("It was cancelled at ")
        assert why["message"].endswith(" UTC: too slow." if reason else " UTC.")


async def test_a_list_is_filtered_and_paged(cell: Cell) -> None:
    """Newest first; a job that comes while pages are read shifts none of them."""
    names = [f"n{n}" for n in range(7)]
    for name in names:
        await cell.submit(name=name, **({"team": "red"} if name == "n3" else {}))
    seen: list[str] = []
    page = await cell.get("/v1/jobs", limit=3, min_position=await cell.log.end())
    while True:
        seen += [job["name"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        late = await cell.submit(name="late")
        page = await cell.get("/v1/jobs", limit=3, cursor=page["next_cursor"], min_position=late["position"])
    assert seen == names[::-1]

    assert [job["name"] for job in (await cell.get("/v1/jobs", team="red"))["jobs"]] == ["n3"]
    assert [job["name"] for job in (await cell.get("/v1/jobs", name="n5"))["jobs"]] == ["n5"]
    assert (await cell.get("/v1/jobs", state="running"))["jobs"] == []
    both = await cell.get("/v1/jobs", state=["running", "queued"], limit=500)
    assert len(both["jobs"]) == 9
    since = next(job for job in both["jobs"] if job["name"] == "n5")["submitted_at"]
    some = await cell.get("/v1/jobs", since=since, limit=500)
    assert {job["name"] for job in some["jobs"]} == {"n5", "n6", "late"}
    assert await cell.get("/v1/jobs", team="nobody\0") | {"position": 0} == {
        "jobs": [],
        "next_cursor": None,
        "position": 0,
    }


WRONG = (
    ("/v1/jobs?cursor=x", 422, "invalid"),
    ("/v1/jobs?limit=0", 422, "invalid"),
    ("/v1/jobs?limit=9999", 422, "invalid"),
    ("/v1/jobs?state=asleep", 422, "invalid"),
    ("/v1/jobs?since=yesterday", 422, "invalid"),
    ("/v1/jobs?min_position=-1", 422, "invalid"),
    ("/v1/jobs/jaaaaaaaaaaaaa", 404, "not_found"),
    ("/v1/jobs/%00", 404, "not_found"),
    ("/v1/jobs/jaaaaaaaaaaaaa/timeline", 404, "not_found"),
    ("/v1/jobs/jaaaaaaaaaaaaa/why", 404, "not_found"),
    ("/v1/nowhere", 404, "no_such_address"),
)


async def test_what_cannot_be_read_is_a_problem_document(cell: Cell) -> None:
    """With a code, whatever went wrong."""
    await cell.get("/v1/jobs", min_position=await cell.log.end())
    for path, status, code in WRONG:
        response = await cell.http.get(path)
        assert (response.status_code, response.json()["code"]) == (status, code), response.text
        assert response.headers["content-type"] == "application/problem+json"


async def test_an_id_may_be_shortened_while_it_is_the_only_one(cell: Cell) -> None:
    """Else the answer names those that it could be."""
    ids = [(answer := await cell.submit())["job_id"] for _ in range(5)]
    job = await cell.get(f"/v1/jobs/{ids[0][:10]}", min_position=answer["position"])
    assert job["job_id"] == ids[0]
    response = await cell.http.get("/v1/jobs/j")
    assert (response.status_code, response.json()["code"]) == (409, "ambiguous")


async def test_answers_say_their_position_and_wait_for_one(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the header and in the body; a position that does not come is a time-out with a code."""
    answer = await cell.submit()
    response = await cell.http.get("/v1/jobs", params={"min_position": answer["position"]})
    assert int(response.headers["Muster-Position"]) == response.json()["position"] >= answer["position"]
    monkeypatch.setattr("services.api.parts.BEHIND_S", 0.1)
    late = await cell.http.get("/v1/jobs", params={"min_position": answer["position"] + 1_000})
    assert (late.status_code, late.json()["code"]) == (504, "behind")
    assert late.json()["position"] >= answer["position"]


async def test_a_timeline_tells_all_that_happened(cell: Cell) -> None:
    """Every event of the job in order, as its CloudEvents document with position and time of storing."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    await cell.run(job_id)
    end = await cell.succeed(job_id)
    shown = await cell.get(f"/v1/jobs/{job_id}/timeline", min_position=end)
    types = [event["type"].removeprefix("musterbook.") for event in shown["events"]]
    assert types == ["job.submitted.v1", "job.admitted.v1", "job.placed.v1", "job.run_started.v1", "job.succeeded.v1"]
    assert shown["events"][0]["data"]["spec"]["gpus"] == 2
    assert shown["events"][0]["by"] == shown["events"][0]["authid"] == "api:default"
    assert [event["position"] for event in shown["events"]] == sorted({event["position"] for event in shown["events"]})
    assert not shown["truncated"]
    rest = await cell.get(f"/v1/jobs/{job_id}/timeline", after=shown["events"][1]["position"], limit=2)
    assert [event["type"] for event in rest["events"]] == [event["type"] for event in shown["events"][2:4]]
    assert rest["truncated"]


async def test_why_is_asked_of_the_control_plane(cell: Cell) -> None:
    """Its numbers are passed on; without one the tables answer, and say how old that is."""
    job_id = (answer := await cell.submit("k"))["job_id"]
    alone = await cell.get(f"/v1/jobs/{job_id}/why", min_position=answer["position"])
    assert (alone["source"], alone["state"], alone["code"]) == ("tables", "queued", "not_evaluated")
    assert "no control plane answered" in alone["note"]

    async def say(_: str, payload: bytes) -> bytes:
        asked = msgspec.json.decode(payload, type=WhyAsk).job_id
        told = Why(
            job_id=asked, found=asked == job_id, position=Position(7), leader=True, state="queued", code="no_room",
            message="needs 2 GPUs, 0 are free", need={"gpus": 2}, have={"gpus_free": 0}, blockers=("jx",),
        )  # fmt: skip
        return msgspec.json.encode(told)

    async with serving(cell.system, Served(SUBJECTS.why, "why", say, b"")):
        told = await cell.get(f"/v1/jobs/{job_id}/why")
        assert (told["source"], told["code"], told["have"], told["blockers"]) == (
            "leader", "no_room", {"gpus_free": 0}, ["jx"],
        )  # fmt: skip
        unknown = await cell.http.get("/v1/jobs/jaaaaaaaaaaaaa/why")
        assert unknown.status_code == 404


async def test_reads_do_not_wait_for_each_other(cell: Cell) -> None:
    """A hundred at once are all answered."""
    answer = await cell.submit()
    async with AsyncExitStack():
        found = await asyncio.gather(
            *(cell.get(f"/v1/jobs/{answer['job_id']}", min_position=answer["position"]) for _ in range(100))
        )
    assert {job["job_id"] for job in found} == {answer["job_id"]}
