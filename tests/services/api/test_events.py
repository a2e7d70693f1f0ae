"""The event stream: from any position, of all or of one job, to the end or on as things happen."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from events.base import JobId
from tests.services.api.cell import Cell


@asynccontextmanager
async def sent(cell: Cell, path: str, headers: dict[str, str] | None = None, **params: Any) -> AsyncIterator[Any]:
    """The events that a stream sends, as (id, name, document)."""
    async with cell.http.stream("GET", path, params=params, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")

        async def parsed() -> AsyncIterator[tuple[str, str, Any]]:
            fields: dict[str, str] = {}
            async for line in response.aiter_lines():
                if line.startswith(":"):
                    continue
                if not line and "data" in fields:
                    yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                else:
                    fields = {}

        yield parsed()


async def all_sent(cell: Cell, headers: dict[str, str] | None = None, **params: Any) -> list[Any]:
    """The documents of a stream that ends."""
    async with sent(cell, "/v1/events", headers, **params) as events:
        return [document async for _, _, document in events]


async def test_the_whole_log_can_be_read(cell: Cell) -> None:
    """In order, without gaps, each event with its position as id; from any of them on."""
    for n in range(5):
        await cell.submit(f"k{n}")
    async with sent(cell, "/v1/events") as events:
        found = [(int(identity), document) async for identity, _, document in events]
    positions = [document["position"] for _, document in found]
    assert [identity for identity, _ in found] == positions
    assert positions == list(range(positions[0], positions[0] + 6))
    assert found[0][1]["type"] == "musterbook.log.founded.v1"
    document = found[1][1]
    assert (document["specversion"], document["data"]["key"], document["subject"].split(".")[0]) == (
        "1.0", "k0", "intake",
    )  # fmt: skip
    assert [event["position"] for event in await all_sent(cell, **{"from": positions[2]})] == positions[3:]
    resumed = await all_sent(cell, {"Last-Event-ID": str(positions[3])}, **{"from": 0})
    assert [event["position"] for event in resumed] == positions[4:]
    assert await all_sent(cell, **{"from": positions[-1]}) == []


async def test_events_can_be_chosen_by_type_and_job(cell: Cell) -> None:
    """Types in full or short; a type or a position that is not there is refused."""
    first = await cell.submit("a")
    await cell.submit("b")
    await cell.http.post(f"/v1/jobs/{first['job_id']}:cancel", headers={"Muster-Team": "default"})
    cancels = await all_sent(cell, type="job.cancel_requested")
    assert [event["data"]["job_id"] for event in cancels] == [first["job_id"]]
    own = await all_sent(cell, job=first["job_id"])
    assert [event["type"] for event in own] == ["musterbook.job.submitted.v1", "musterbook.job.cancel_requested.v1"]
    assert await all_sent(cell, job=first["job_id"], type="musterbook.job.placed.v1") == []
    for params in ({"type": "job.exploded"}, {"from": 1 << 60}, {"from": -1}):
        response = await cell.http.get("/v1/events", params=params)
        assert (response.status_code, response.json()["code"]) == (422, "invalid")


async def test_a_stream_goes_on_as_things_happen(cell: Cell) -> None:
    """What was there first, then what comes, of one job if so wanted."""
    first = await cell.submit("a")
    async with (
        sent(cell, "/v1/events", follow=True, **{"from": first["position"] - 1}) as everything,
        sent(cell, "/v1/events", follow=True, job=first["job_id"]) as own,
    ):
        assert (await anext(everything))[2]["data"]["key"] == "a"
        assert (await anext(own))[2]["data"]["key"] == "a"
        await cell.submit("b")
        cancelled = await cell.http.post(f"/v1/jobs/{first['job_id']}:cancel")
        assert (await anext(everything))[2]["data"]["key"] == "b"
        for events in (everything, own):
            assert (await anext(events))[2]["position"] == cancelled.json()["position"]


async def test_a_jobs_stream_has_what_its_nodes_report(cell: Cell) -> None:
    """By the index of the tables and out of the log alike."""
    await cell.join()
    job_id = JobId((await cell.submit("a"))["job_id"])
    end = await cell.run(job_id)
    await cell.get("/v1/jobs", min_position=end)
    types = [event["type"] for event in await all_sent(cell, job=job_id)]
    assert types[0] == "musterbook.job.submitted.v1"
    assert types[-1] == "musterbook.job.run_started.v1"
    assert len(types) == 4


async def test_a_client_that_leaves_frees_its_stream(cell: Cell) -> None:
    """Streams are counted, and bounded."""

    async def open_streams() -> float:
        text = (await cell.http.get("/metrics")).text
        return float(next(line for line in text.splitlines() if line.startswith("muster_http_streams ")).split()[1])

    async with sent(cell, "/v1/events", follow=True) as events:
        await anext(events)
        assert await open_streams() == 1
    for _ in range(500):
        if not await open_streams():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the stream is still open")


async def test_a_record_that_cannot_be_read_is_shown_as_such(cell: Cell) -> None:
    """Bytes that somebody put there by hand end no stream, and readiness tells of them."""
    await cell.system.request("muster.main.ev.intake.red.jx", b"not an event")
    position = (await cell.submit("after"))["position"]
    found = await all_sent(cell)
    assert [event["type"] for event in found][1:] == ["musterbook.unreadable", "musterbook.job.submitted.v1"]
    assert "reason" in found[1]["data"]
    await cell.get("/v1/jobs", min_position=position)
    ready = (await cell.http.get("/readyz")).json()
    assert ready["checks"]["unreadable"] == {"ok": False, "detail": "1 records of the log cannot be read"}
