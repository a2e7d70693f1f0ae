"""What becomes of a cluster that is there: the fold, run on with the runtimes that jobs declared."""

from events.base import JobId
from events.policy import PolicySet
from services.simulate.ahead import run_ahead
from tests.clusters import BEGIN, World


def world() -> World:
    """A job of 100 s that has run for 30, one that waits, and one that declared nothing."""
    world = World({"n0": 8})
    world.submit("runs", 8, max_runtime_s=100, stop_grace_s=0)
    world.rounds()
    world.start(JobId("runs"))
    world.rounds()
    world.wait(30)
    world.submit("waits", 8, max_runtime_s=20, stop_grace_s=0)
    world.submit("undeclared", 8, stop_grace_s=0)
    world.rounds()
    return world


def test_what_waits_starts_when_what_runs_has_run_its_declared_time() -> None:
    """And who declared nothing runs as long as it is said."""
    there = world()
    submitted = {JobId("waits"): there.at, JobId("undeclared"): there.at, JobId("runs"): BEGIN}
    _, document = run_ahead(there.cluster, submitted, runtime_default_s=500)
    by_job = {job["job_id"]: job for job in document["by_job"]}
    assert {name: (job["waiting"], job["starts_in_s"], job["ends_in_s"]) for name, job in by_job.items()} == {
        "runs": (False, None, 70),
        "waits": (True, 70, 90),
        "undeclared": (True, 90, 590),
    }
    assert by_job["waits"]["wait_s"] == 70
    assert document["at"] == there.at.isoformat()
    assert (document["unfinished"], document["promises_made"], document["promises_kept"]) == (0, 2, 2)


def test_another_policy_can_be_tried() -> None:
    """From that moment on, and on this cluster alone: here the shortest goes first, and nothing declared is longest."""
    there = world()
    there.submit("short", 8, max_runtime_s=5, stop_grace_s=0)
    before = there.cluster.fork()
    _, document = run_ahead(there.cluster, {}, instead=(PolicySet(at=there.at, order="sjf", preemption=False),))  # type: ignore[arg-type]
    starts = {job["job_id"]: job["starts_in_s"] for job in document["by_job"]}
    assert (starts["short"], starts["waits"], starts["undeclared"]) == (70, 75, 95)
    assert before is not there.cluster
