"""The rungs of a stop, and when a node without contact begins one."""

import pytest
from msgspec.structs import replace

from agent.core.found import Step, Trace, Why
from agent.core.ladder import due, isolated, over_time, rungs_s
from events.base import NodeEpoch
from events.job import Checkpoint, JobSpec, OnLost
from tests.agent.core.world import share_of


def spec_of(stop_grace_s: int, checkpoint_s: int = 0, on_lost: OnLost = OnLost.RESTART) -> JobSpec:
    """A job with these graces."""
    checkpoint = Checkpoint(grace_s=checkpoint_s) if checkpoint_s else None
    fields = {"name": "x", "command": ("x",), "gpus": 1, "on_lost": on_lost}
    return JobSpec(stop_grace_s=stop_grace_s, checkpoint=checkpoint, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("why", "rungs"),
    [(Why.ORDER, (30.0, 40.0)), (Why.RANK_FAILED, (0.0, 10.0)), (Why.ISOLATED, (7.5, 15.0))],
)
def test_rungs_follow_the_job_the_reason_and_the_time_that_is_left(why: Why, rungs: tuple[float, float]) -> None:
    """A broken gang saves nothing; a node without contact has a quarter of the time after which it is lost."""
    assert rungs_s(spec_of(10, 30), why, 60.0) == rungs


@pytest.mark.parametrize(("age_s", "step"), [(0.0, Step.TERM), (9.9, Step.TERM), (10.0, Step.KILL)])
def test_without_a_checkpoint_a_stop_begins_with_term(age_s: float, step: Step) -> None:
    """KILL when the grace is over."""
    assert due(spec_of(10), Why.ORDER, age_s, 60.0) is step


@pytest.mark.parametrize(
    ("spec", "from_s"), [(spec_of(5), 50.0), (spec_of(0), 60.0), (spec_of(10, 300), 30.0), (spec_of(15), 30.0)]
)
def test_isolation_begins_twice_the_grace_before_the_node_is_lost(spec: JobSpec, from_s: float) -> None:
    """But not before half of that time, however long the grace."""
    assert not isolated(spec, from_s - 0.1, 60.0)
    assert isolated(spec, from_s, 60.0)


def test_a_job_that_waits_for_its_node_is_never_isolated() -> None:
    """It is not started elsewhere, so it may go on."""
    assert not isolated(spec_of(5, on_lost=OnLost.WAIT), 1_000.0, 60.0)


@pytest.mark.parametrize(("nodes", "limit_s"), [(1, 60.0), (2, 65.0)])
def test_a_share_that_is_all_of_its_run_is_stopped_at_the_limit_and_others_wait_for_theirs(
    nodes: int, limit_s: float
) -> None:
    """The limit counts from the last rank's start, which a node knows only if all ranks are its own."""
    share = replace(share_of(0, max_runtime_s=60), nodes=nodes)
    running = Trace(share=share, epoch=NodeEpoch(5))
    assert not over_time(replace(running, age_s=limit_s - 0.1))
    assert over_time(replace(running, age_s=limit_s))
