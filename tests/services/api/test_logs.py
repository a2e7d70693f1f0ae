"""What jobs print, over HTTP: a snapshot, plain text, and a stream that ends with the job."""

import asyncio

from events.base import JobId
from tests.services.api.cell import Cell
from tests.services.api.test_events import sent


async def running(cell: Cell) -> JobId:
    """A job that runs, and is shown to."""
    await cell.join()
    job_id = JobId((await cell.submit("k"))["job_id"])
    await cell.get("/v1/jobs", min_position=await cell.run(job_id))
    return job_id


async def test_output_is_told_by_line_and_rank(cell: Cell) -> None:
    """Once, although an agent that restarted sent some of it again; lines that span pieces are whole."""
    job_id = await running(cell)
    await cell.print(job_id, 0, (0, b"one\ntw"), (4, b"two\n"), (8, b"three\n"))
    await cell.print(job_id, 1, (0, b"10%\r50%\r100%\nlast"))
    answer = await cell.get(f"/v1/jobs/{job_id}/logs")
    assert [(line["rank"], line["text"]) for line in answer["lines"]] == [
        (0, "one"), (0, "two"), (0, "three"), (1, "100%"), (1, "last"),
    ]  # fmt: skip
    assert not answer["truncated"]
    assert set(answer["lines"][0]) == {"rank", "stream", "text", "at", "run_id", "node_id"}
    one = await cell.get(f"/v1/jobs/{job_id}/logs", rank=1, tail=1)
    assert ([line["text"] for line in one["lines"]], one["truncated"]) == (["last"], True)
    plain = await cell.http.get(f"/v1/jobs/{job_id[:8]}/logs", headers={"Accept": "text/plain"}, params={"tail": 2})
    assert plain.text == "1: 100%\n1: last\n"
    assert (await cell.get(f"/v1/jobs/{job_id}/logs", rank=7))["lines"] == []
    assert (await cell.http.get("/v1/jobs/jaaaaaaaaaaaaa/logs")).status_code == 404


async def test_a_stream_of_output_ends_with_the_job(cell: Cell) -> None:
    """Lines as they come, the last one also when nothing ends it, then an event that says how the job ended."""
    job_id = await running(cell)
    await cell.print(job_id, 0, (0, b"one\ntwo\n"))
    async with asyncio.timeout(30), sent(cell, f"/v1/jobs/{job_id}/logs", follow=True, tail=1) as events:
        assert (await anext(events))[2]["text"] == "two"
        await cell.print(job_id, 0, (8, b"three\nfo"))
        identity, _, line = await anext(events)
        assert line["text"] == "three"
        await cell.succeed(job_id)
        await cell.print(job_id, 0, (16, b"ur"))
        rest = [(name, document) async for _, name, document in events]
    assert rest[0][1]["text"] == "four"
    assert rest[1] == ("end", {"state": "succeeded"})
    async with sent(cell, f"/v1/jobs/{job_id}/logs", follow=True, after=identity) as events:
        again = [document async for _, name, document in events if not name]
    assert [line["text"] for line in again] == ["three", "four"]
