"""What is asked of the tables: lists with filters and pages, one by id or the beginning of it, timelines, counts."""

from collections import Counter

from events.base import JobId, NodeId, Recorded
from events.job import JobSucceeded
from projections.tables import event_index, gpu_view, job_view, node_view, queue_view, run_view, schema, share_view
from projections.tables.job_view import Filter, JobState
from projections.tables.node_view import NodeState
from runtime.postgres import Pool
from tests.projections.tables.written import fill, lived, recorded


def _rich(seed: int) -> list[Recorded]:
    """A history in which a gang on several nodes has succeeded."""
    while True:
        history = lived(seed, 600)
        wide = {run.run_id for run in history.placed if len(run.shares) > 1}
        if any(isinstance(r.event, JobSucceeded) and r.event.run_id in wide for r in history.records):
            return recorded(record.event for record in history.records)
        seed += 1


HISTORY = _rich(17)


async def _filled(pool: Pool) -> None:
    async with pool.acquire() as conn:
        await fill(conn, schema.LIVE, [HISTORY])


async def test_jobs_come_in_pages_newest_first_and_filtered(pool: Pool) -> None:
    """Pages join without a gap or a repeat, and each filter leaves what it says."""
    await _filled(pool)
    every = await job_view.jobs(pool, limit=1000)
    paged, before = [], job_view.NEWEST
    while page := await job_view.jobs(pool, before=before, limit=7):
        paged += page
        before = page[-1].submitted
    assert paged == every
    assert [job.submitted for job in every] == sorted((job.submitted for job in every), reverse=True)
    assert len({job.state for job in every}) > 4

    for states in ({JobState.QUEUED, JobState.ADMITTED}, {JobState.SUCCEEDED}, set(JobState), set()):
        listed = await job_view.jobs(pool, Filter(states=frozenset(states)), limit=1000)
        assert listed == [job for job in every if job.state in states]
    assert await job_view.jobs(pool, Filter(team="t"), limit=1000) == [job for job in every if job.team == "t"]
    assert await job_view.jobs(pool, Filter(team="other")) == []
    assert [job.job_id for job in await job_view.jobs(pool, Filter(name="job3"))] == ["j3"]


async def test_a_job_is_found_by_its_id_or_the_beginning_of_it(pool: Pool) -> None:
    """An id is itself, even where it begins another; a beginning is all that it could mean."""
    await _filled(pool)

    assert [job.job_id for job in await job_view.named(pool, "j1")] == ["j1"]
    assert len(await job_view.named(pool, "j")) == job_view.MATCHES_MAX
    for nothing in ("", "x", "j%", "J1", "é", "\0"):
        assert await job_view.named(pool, nothing) == []


async def test_a_job_is_shown_with_runs_shares_and_timeline(pool: Pool) -> None:
    """From a job to its runs, to their shares, and to every event about any of them."""
    await _filled(pool)
    job = next(job for job in await job_view.jobs(pool, limit=1000) if job.state == "succeeded" and job.nodes > 1)
    runs = await run_view.runs_of(pool, job.job_id)
    shares = await share_view.shares_of(pool, runs[-1].run_id)
    timeline = await event_index.of_job(pool, job.job_id)

    assert [run.attempt for run in runs] == list(range(1, job.attempt + 1))
    assert (runs[-1].run_id, runs[-1].state, runs[-1].ended_at) == (job.run_id, "succeeded", job.ended_at)
    assert job.node_ids == runs[-1].node_ids == [share.node_id for share in shares]
    assert sum(len(share.slots) for share in shares) == runs[-1].gpus == job.gpus
    assert all(share.state == "released" and share.exit_code == 0 for share in shares)
    assert job.exit_code == 0
    mine = [r for r in HISTORY if getattr(r.event, "job_id", "") == job.job_id]
    theirs = [r for r in HISTORY if getattr(r.event, "run_id", "").rpartition("-")[0] == job.job_id]
    assert {row.position for row in timeline} == {r.position for r in mine + theirs}
    assert any(row.node_id for row in timeline)
    assert [row.position for row in timeline] == sorted(row.position for row in timeline)
    assert await event_index.of_job(pool, job.job_id, after=timeline[2].position, limit=2) == timeline[3:5]
    assert isinstance(HISTORY[job.position - HISTORY[0].position].event, JobSucceeded)


async def test_nodes_are_shown_with_their_gpus_by_state(pool: Pool) -> None:
    """What a node shows is what its slots say."""
    await _filled(pool)
    every = await node_view.nodes(pool)
    for node in every:
        states = Counter(gpu.state for gpu in await gpu_view.gpus_of(pool, node.node_id))
        assert (node.free, node.held, node.unclean) == (states["free"], states["held"], states["unclean"])
        assert node.gpus == sum(states.values()) - states["absent"] or node.state == "lost"
        assert await node_view.node(pool, node.node_id) == node
    assert await node_view.nodes(pool, after=every[1].node_id, limit=2) == every[2:4]
    lost = await node_view.nodes(pool, states=frozenset({NodeState.LOST}))
    assert lost == [node for node in every if node.state == "lost"]
    assert await node_view.node(pool, "nowhere") is None
    counts = await gpu_view.counts(pool)
    assert sum(kind.get("free", 0) for kind in counts.values()) == sum(node.free for node in every)
    assert {row.node_id for row in await event_index.of_node(pool, NodeId("n1"))} == {"n1"}


async def test_queues_are_shown_by_team(pool: Pool) -> None:
    """A team's line adds up to its jobs."""
    await _filled(pool)
    for queue in await queue_view.queues(pool):
        jobs = Counter(job.state for job in await job_view.jobs(pool, Filter(team=queue.team), limit=1000))
        assert {state: getattr(queue, state) for state in JobState} == {state: jobs[state] for state in JobState}


async def test_all_events_are_listed_both_ways(pool: Pool) -> None:
    """Forwards from a position, backwards from another."""
    await _filled(pool)
    every = await event_index.of_all(pool, limit=10_000)

    assert [row.position for row in every] == [record.position for record in HISTORY]
    assert await event_index.latest(pool, before=every[10].position, limit=3) == [every[9], every[8], every[7]]
    assert await event_index.of_job(pool, JobId("nobody")) == []
