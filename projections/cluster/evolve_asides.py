"""How what is set aside or promised for jobs changes the cluster."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from events.base import JobId, Recorded
from events.job import (
    ConsolidationProposed,
    EarmarkDropped,
    GpusEarmarked,
    JobEvent,
    NodeShare,
    PromiseDropped,
    PromiseMoved,
    StartPromised,
)
from projections.cluster.index import node_of, put_job, put_run, put_slots
from projections.cluster.job import EVIDENCE_MAX, Earmark, Job, JobState, Promise
from projections.cluster.state import Cluster

EARLIEST: Final = datetime.fromisoformat("1000-01-01T00:00:00+00:00")  # start of a promise that is reckoned with
LATEST: Final = datetime.fromisoformat("4500-01-01T00:00:00+00:00")  # likewise; times end with the year 9999


def job_of(cluster: Cluster, e: JobEvent) -> Job:
    """The job that a decision is about."""
    job = cluster.jobs[e.job_id]
    assert job.team == e.team
    return job


def assert_gang(cluster: Cluster, shares: tuple[NodeShare, ...], ranks: tuple[int, ...] = ()) -> None:
    """There are some, each on a node of its own that is known, in order; and the ranks are an order of them."""
    assert shares
    before = ""
    for share in shares:
        assert before < share.node_id
        assert share.node_id in cluster.nodes
        before = share.node_id
    assert not ranks or sorted(ranks) == list(range(len(shares)))


def _earmarked(cluster: Cluster, e: GpusEarmarked, recorded: Recorded) -> None:
    job = job_of(cluster, e)
    assert job.job_id not in cluster.earmarks
    assert_gang(cluster, e.shares, e.ranks)
    assert len(set(e.victims)) == len(e.victims)
    victims = [cluster.runs[run_id] for run_id in e.victims]
    assert all(not victim.evicted_for and victim.job_id != job.job_id for victim in victims)
    for share in e.shares:
        node = cluster.nodes[share.node_id]
        assert not share.slots & node.marked or node.epoch != share.node_epoch
    for share in e.shares:
        if (marked := node_of(cluster, share.node_id, share.node_epoch)) is not None:
            put_slots(cluster, marked.marking(job.job_id, share.slots))
    cluster.earmarks[job.job_id] = Earmark(
        job_id=job.job_id,
        shares=e.shares,
        ranks=e.ranks,
        victims=e.victims,
        until=e.until,
        at=recorded.at,
        position=recorded.position,
    )
    for victim in victims:
        evidence = (*victim.evidence, recorded.id)[:EVIDENCE_MAX]
        put_run(cluster, replace(victim, evicted_for=job.job_id, moved=e.moved, evidence=evidence))
        evicted = cluster.jobs[victim.job_id]
        put_job(
            cluster,
            replace(
                evicted,
                evictions=evicted.evictions + 1,
                evicted_at=recorded.at,
                evicted_for=(*evicted.evicted_for, job.job_id),
            ),
        )


def _earmark_dropped(cluster: Cluster, e: EarmarkDropped, recorded: Recorded) -> None:
    job_of(cluster, e)
    assert e.job_id in cluster.earmarks
    drop_earmark(cluster, e.job_id)


def drop_earmark(cluster: Cluster, job_id: JobId) -> None:
    """What was set aside for the job is anyone's again."""
    for share in cluster.earmarks.pop(job_id).shares:
        node = cluster.nodes[share.node_id]
        if job_id in node.earmarked:
            put_slots(cluster, node.marking(job_id, 0))


def _promised(cluster: Cluster, e: StartPromised, recorded: Recorded) -> None:
    assert job_of(cluster, e).state is JobState.ADMITTED
    assert e.job_id not in cluster.promises
    assert_gang(cluster, e.shares)
    start = _reckoned(e.start)
    cluster.promises[e.job_id] = Promise(
        job_id=e.job_id,
        shares=e.shares,
        start=start,
        first=start,
        at=recorded.at,
        position=recorded.position,
    )


def _promise_moved(cluster: Cluster, e: PromiseMoved, recorded: Recorded) -> None:
    before = cluster.promises[job_of(cluster, e).job_id]
    assert_gang(cluster, e.shares)
    start = _reckoned(e.start)
    cluster.promises[e.job_id] = replace(
        before,
        shares=e.shares,
        start=start,
        first=before.first or start,
        at=recorded.at,
        position=recorded.position,
        moves=before.moves + 1,
    )


def _reckoned(start: datetime | None) -> datetime | None:
    """The start, or one so near that runtimes may be added to it, and taken from it, as often as there are promises."""
    return max(EARLIEST, min(start, LATEST)) if start is not None else None


def _promise_dropped(cluster: Cluster, e: PromiseDropped, recorded: Recorded) -> None:
    del cluster.promises[job_of(cluster, e).job_id]


def _consolidation_proposed(cluster: Cluster, e: ConsolidationProposed, recorded: Recorded) -> None:
    put_job(cluster, replace(job_of(cluster, e), proposed_at=recorded.at))


ASIDE_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    GpusEarmarked: _earmarked,
    EarmarkDropped: _earmark_dropped,
    StartPromised: _promised,
    PromiseMoved: _promise_moved,
    PromiseDropped: _promise_dropped,
    ConsolidationProposed: _consolidation_proposed,
}
