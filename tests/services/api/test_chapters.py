"""The log's chapters over HTTP: what each holds, and going on in the next; what counts positions goes across."""

import asyncio
from datetime import timedelta

from events.base import Position, chapter_of, position_of
from events.chain import Chain, extended
from events.log.port import Roll
from projections.cluster.audit.audit import audit
from projections.cluster.state import Cluster
from projections.tables.verify import verify
from runtime.postgres import create_pool
from runtime.serve_requests import Served, serving
from services.api.chapter_schemas import Log
from services.api.moment import moment_of
from services.api.webhooks import last_by
from services.control.answers import answering_roll
from services.control.chapters import Chapters
from tests.events.log.rigs import read_to
from tests.services.api.cell import CLOCK, SUBJECTS, Cell


async def roll(cell: Cell) -> Position:
    """The next chapter is open."""
    chain = extended(Chain(), tuple(await read_to(cell.log, await cell.log.end())))
    return (await cell.log.roll(chain, Roll(log_id="x", at=CLOCK.now()))).opened


async def test_the_log_is_rolled_and_shown(cell: Cell) -> None:
    """An operator is told where it goes on; without a control plane, that nobody did it."""
    await cell.submit("k1")
    away = await cell.http.post("/v1/log:roll")
    assert (away.status_code, away.json()["code"]) == (503, "control_away")
    chapters = Chapters(cell.log, CLOCK)

    async def follow() -> None:
        cluster = Cluster()
        async for stretch in cell.log.follow(cluster.position):
            chapters.watch(cluster, stretch)
            if cause := chapters.due(leading=False):
                await chapters.roll(cluster, cause)

    following = asyncio.create_task(follow())
    async with serving(cell.system, Served(SUBJECTS.roll, "roll", answering_roll(chapters), b"")):
        rolled = await cell.http.post("/v1/log:roll", headers={"Muster-Operator": "jo"})
    following.cancel()
    body = rolled.json()
    assert (rolled.status_code, body["chapter"], body["position"]) == (200, 2, position_of(2, 1))
    assert 0 < body["gap_s"] < 5
    answer = await cell.get("/v1/log")
    assert Log.model_validate(answer).position == body["position"]
    shown = answer["chapters"]
    assert [(c["chapter"], c["records"], c["cause"], c["by"]) for c in shown] == [
        (1, body["closed"] - position_of(1, 0), "asked", "api:jo"),
        (2, 1, None, ""),
    ]
    assert len(shown[0]["digest"]) == 64
    assert shown[0]["size_bytes"] > 0
    assert shown[0]["first_at"] <= shown[0]["last_at"] <= shown[1]["first_at"]


async def test_what_reads_the_log_reads_all_of_its_chapters(cell: Cell, postgres_dsn: str) -> None:
    """A key is taken in any; the tables are what the whole log says; a time and a lag are found across."""
    await cell.join()
    first = await cell.submit("k1")
    opened = await roll(cell)
    again = await cell.http.post("/v1/jobs", json={"key": "k1", "spec": {"name": "train", "command": ["x"], "gpus": 2}})
    assert again.status_code == 409
    cell_head = opened
    cell._head = cell_head
    await cell.run(first["job_id"])
    await roll(cell)
    second = await cell.submit("k2")
    jobs = await cell.get("/v1/jobs", min_position=second["position"])
    assert {job["job_id"]: job["state"] for job in jobs["jobs"]} == {
        first["job_id"]: "running",
        second["job_id"]: "queued",
    }
    documents = (await cell.http.get(f"/v1/jobs/{first['job_id']}")).json()
    assert documents["state"] == "running"
    assert (await cell.http.get("/readyz")).json()["lag"] == 0
    reader = cell.open_reader()
    records = await read_to(reader, second["position"])
    assert [chapter_of(r.position) for r in records if r.subject == "head"] == [1, 2, 2, 3]
    assert [finding for finding in audit(records) if finding.law in {"chapters", "contiguous", "digest"}] == []
    for one in records:
        by = moment_of(one.at.isoformat(), CLOCK.now() + timedelta(days=1))
        last = max(r.position for r in records if r.at <= one.at)
        assert await last_by(cell.log, by, records[-1].position) == last
    pool = await create_pool(postgres_dsn, name="verify", size_max=2)
    verified = await verify(reader, pool)
    await pool.close()
    reader.close()
    assert verified.same
