"""What teams have and want, as sums: against a count of every job and run."""

from collections import Counter

from hypothesis import given, settings

from projections.cluster.job import WANT_NOTHING, JobState
from projections.cluster.quota.claims import Claims, type_of
from tests.histories import History, histories


@settings(max_examples=20)
@given(histories(120))
def test_sums_are_what_live_jobs_add_up_to(grown: History) -> None:
    """At every level, over random histories: use, what is held, and what is wanted, whatever came and went."""
    cluster = grown.cluster
    claims = Claims(cluster, grown.at, without={})
    used: Counter[tuple[str, str]] = Counter()
    now: Counter[tuple[str, str]] = Counter()
    jobs: Counter[str] = Counter()
    milder: Counter[tuple[str, str]] = Counter()
    wanted: Counter[tuple[str, str]] = Counter()
    for run in cluster.runs.values():
        for name in cluster.tree.path(run.team):
            used[name, run.gpu_type] += 0 if run.evicted_for else run.gpus
            now[name, run.gpu_type] += run.gpus
            jobs[name] += not run.evicted_for
        if run.preemptible and run.rank > 1 and not run.evicted_for:
            milder[cluster.tree.path(run.team)[0], run.gpu_type] += run.gpus
    for earmark in cluster.earmarks.values():
        gpu_type = cluster.nodes[earmark.shares[0].node_id].gpu_type
        for name in cluster.tree.path(cluster.jobs[earmark.job_id].team):
            used[name, gpu_type] += sum(share.slots.bit_count() for share in earmark.shares)
            jobs[name] += 1
    for job in cluster.jobs.values():
        waits = job.state is not JobState.PLACED and job.job_id not in cluster.earmarks
        later = job.not_before is not None and job.not_before > grown.at
        if (
            waits
            and not later
            and not cluster.tree.stopped(job.team)
            and not job.cancel
            and job.hold not in WANT_NOTHING
        ):
            wanted[cluster.tree.path(job.team)[0], type_of(cluster, job.shape.gpu_types)] += job.shape.gpus

    then = (claims.then.gpus, used)  # once what is decided has happened
    for kept, counted in ((claims.used, used), (claims.now.gpus, now), then, (claims.wanted, wanted)):
        said = {(name, gpu_type): gpus for gpu_type, of in kept.items() for name, gpus in of.items() if gpus > 0}
        assert said == {key: gpus for key, gpus in counted.items() if gpus and key[1]}
    assert {name: number for name, number in claims.then.jobs.items() if number} == +jobs
    less_urgent = claims.less_urgent(1)
    for name, gpu_type in {*milder, *((n, t) for held in less_urgent for t, of in held.gpus.items() for n in of)}:
        assert sum(held.of(name, gpu_type) for held in less_urgent) == milder[name, gpu_type]
