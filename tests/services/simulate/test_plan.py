"""Workloads of one's own: what a stream is, what is drawn, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from events.job import Priority
from services.simulate.fault import BadFile
from services.simulate.plan import JobsTyped, run_plan, stream
from services.simulate.work import US

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "simulated-teams.yaml"


def jobs(**said: Any) -> JobsTyped:
    """A stream."""
    return JobsTyped.model_validate({"name": "j", "gpus": 8, "runtime": "1h", **said})


def plan(**said: Any) -> dict[str, Any]:
    """A file of one node."""
    return {"nodes": [{"gpus": 8}], "jobs": [{"name": "j", "gpus": 8, "runtime": 10}], **said}


def test_a_stream_is_a_row_of_jobs_that_are_alike() -> None:
    """Times as people type them, or in seconds."""
    works = list(stream(jobs(count=3, first="1m", every=30, priority="high"), 0, 0))
    assert [work.arrives_us for work in works] == [60 * US, 90 * US, 120 * US]
    assert {work.runtime_us for work in works} == {3_600 * US}
    assert {(work.spec.max_runtime_s, work.spec.priority) for work in works} == {(3_600, Priority.HIGH)}
    assert len({work.job_id for work in works}) == 3


def test_what_is_declared_is_a_multiple_of_the_truth_or_nothing() -> None:
    """Users guess."""
    assert next(stream(jobs(declared=1.5), 0, 0)).spec.max_runtime_s == 5_400
    assert next(stream(jobs(declared=0), 0, 0)).spec.max_runtime_s == 0


def test_what_is_drawn_follows_from_the_seed_and_has_the_means_that_were_asked_for() -> None:
    """The same seed, the same workload."""
    asked = jobs(count=2_000, every="10m", random=True)
    first, again, other = (list(stream(asked, 0, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first[-1].arrives_us / 2_000 == pytest.approx(600 * US, rel=0.1)
    assert sum(work.runtime_us for work in first) / 2_000 == pytest.approx(3_600 * US, rel=0.1)


def test_the_queues_and_the_policy_of_the_file_hold() -> None:
    """A team whose queue is paused gets nothing."""
    queues = [{"name": "default", "stop": "pause"}]
    assert run_plan(plan(queues=queues), seed=0)[1]["unfinished"] == 1
    simulation, document = run_plan(plan(policy={"order": "fifo"}), seed=0)
    assert (simulation.cluster.policy.order, document["unfinished"]) == ("fifo", 0)


def test_figures_come_by_team_and_by_size() -> None:
    """The example: all its jobs end, and the same seed gives the same document."""
    body = yaml.safe_load(EXAMPLE.read_text())
    _, document = run_plan(body, seed=3)
    assert document["unfinished"] == 0
    assert {team: figures["jobs"] for team, figures in document["teams"].items()} == {"product": 606, "research": 190}
    assert list(document["sizes"]) == ["1", "3-4", "5-8", "33-64"]
    assert run_plan(body, seed=3)[1] == document


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "nodes: is missing"),
        (plan(jobs=[]), "jobs"),
        (plan(jobs=[{"name": "j", "gpu": 8, "runtime": 1}]), "jobs.0.gpu: there is no such field"),
        (plan(jobs=[{"name": "j", "gpus": 8, "runtime": "soon"}]), "jobs.0.runtime: must be"),
        (plan(nodes=[{"gpus": 64}]), "nodes.0.gpus: must be 63 or less"),
        (plan(nodes=[{"count": 60_000}, {"count": 60_000}]), "nodes: there are more than 100000 nodes"),
        (plan(policy={"orders": "fifo"}), "policy.orders: there is no such field"),
        (plan(queues=[{"name": "a", "wait": 2}]), "queues.0.wait: there is no such field"),
    ],
)
def test_a_bad_file_is_refused_with_the_field(body: dict[str, Any], said: str) -> None:
    """The message begins with it, so that its line can be found."""
    with pytest.raises(BadFile) as bad:
        run_plan(body, seed=0)
    assert bad.value.reason.startswith(said)
