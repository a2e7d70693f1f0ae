"""Kueue's performance workloads: quota alone, and the figures that their file names."""

import re
from typing import Any

import pytest
import yaml

from services.simulate.fault import BadFile
from services.simulate.kueue import run_kueue
from tests.recordings import recording

PREEMPTION = {"reclaim_within_cohort": "Any", "within_queue": "LowerPriority"}


def file(of: str = "stream", **changed: Any) -> dict[str, Any]:
    """One cohort of two queues of 4 units, one of which has jobs."""
    stream = {
        "class": "small",
        "count": 6,
        "creation_interval_ms": 10,
        "request": 2,
        "runtime_ms": 100,
        "priority": 50,
    } | (changed if of == "stream" else {})
    queue = {"class": "cq", "count": 2, "nominal_quota": 4, "preemption": PREEMPTION}
    queue |= changed if of == "queue" else {}
    cohort = {"class": "cohort", "count": 2, "queues": [queue | {"workloads": [stream]}]}
    return {"name": "small", "cohorts": [cohort]}


def test_a_stream_waits_its_interval_before_each_workload() -> None:
    """The i-th comes after i intervals, and runs when quota is there for it."""
    simulation, document = run_kueue(file())
    lives = [simulation.lives[job_id] for job_id in sorted(simulation.lives) if job_id.startswith("cohort-0-cq-1")]
    assert [life.work.arrives_us for life in lives] == [10_000 * n for n in range(1, 7)]
    assert [life.started_us for life in lives] == [10_000, 20_000, 110_000, 120_000, 210_000, 220_000]
    assert document["wall_ms"] == 320
    assert document["time_to_admission_ms"] == {"small": 80.0}
    assert (document["jobs"], document["unfinished"], document["evictions"]) == (24, 0, 0)
    assert document["queue_usage_percent"] == pytest.approx(100 * (24 * 2 * 100) / (16 * 310), abs=0.01)


def test_the_baseline_comes_near_the_ideal() -> None:
    """But for what evictions undo: a scheduler that knows neither quota nor overhead has none. One cohort: the others are like it."""
    typed = recording("kueue-baseline.yaml").read_text().replace("count: 5 ", "count: 1 ")
    _, document = run_kueue(yaml.safe_load(typed))
    assert (document["jobs"], document["unfinished"]) == (3_000, 0)
    assert document["wall_ms"] < 1.2 * document["ideal"]["skip_what_does_not_fit"]["wall_ms"]
    assert document["time_to_admission_ms"]["large"] < 1, "the most urgent class waits for nobody of its queue"
    assert document["queue_usage_percent"] > document["published"]["queue_usage_percent"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "x", "cohorts": [], "nodez": 1}, "nodez: there is no such field"),
        ({"name": "x"}, "cohorts: is missing"),
        (file(request=0), "cohorts.0.queues.0.workloads.0.request: must be 1 or more"),
        (file(clas="small"), "cohorts.0.queues.0.workloads.0.clas: there is no such field"),
        (file(queueing="StrictFIFO", of="queue"), "cohorts.0.queues.0.queueing"),
        (file(count=1_000_000), "cohorts: there are 4000000 workloads"),
        (file(nominal_quota=40_000_000, of="queue"), "cohorts: there are 160000000 units of quota"),
    ],
)
def test_what_our_cores_do_not_do_is_refused(body: dict[str, Any], said: str) -> None:
    """Figures of another policy than the file's would be held beside it."""
    with pytest.raises(BadFile, match=re.escape(said)):
        run_kueue(body)
