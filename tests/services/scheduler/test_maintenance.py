"""Maintenance that is planned: what would not have ended before it goes elsewhere, or waits; all else goes on as ever."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from events.base import JobId, NodeId
from events.fleet import NodeDrainBegun
from events.job import EarmarkDropped, HoldCode, JobPlaced, JobSubmitted, PromiseMoved, StartPromised
from events.operator import MaintenanceCancelled, MaintenancePlanned, NodeDrainAsked
from projections.cluster.explain.why import explain
from projections.cluster.job import JobState, lasts
from projections.cluster.state import Cluster
from tests.clusters import World, names

HOUR_S = 3_600


def plan(world: World, node: str, starts_s: float, ends_s: float, name: str = "w") -> None:
    """Maintenance of the node, so long from now."""
    starts, ends = world.at + timedelta(seconds=starts_s), world.at + timedelta(seconds=ends_s)
    world.add(MaintenancePlanned(at=world.at, node_id=NodeId(node), window=name, starts=starts, ends=ends))


def submit(world: World, name: str, gpus: int, hours: float | None = None, **spec: Any) -> JobId:
    """A job that says how long it takes, without graces."""
    runtime: dict[str, Any] = {"max_runtime_s": int(hours * HOUR_S)} if hours is not None else {}
    return world.submit(name, gpus, stop_grace_s=0, **runtime, **spec)


def told(world: World, job: JobId) -> str:
    """Why a job waits."""
    return explain(world.cluster, job, at=world.at).message


def test_a_job_goes_where_it_ends_before_the_maintenance() -> None:
    """What ends before it may go there, and what says nothing; what does not goes to the other node, though that is fuller."""
    world = World({"n1": 8, "n2": 8, "n3": 8})
    plan(world, "n1", 5 * HOUR_S, 6 * HOUR_S)
    submit(world, "long", 8, 6)
    world.rounds()
    assert world.placed["long"] == [("n2", 8)]
    submit(world, "short", 8, 5)
    submit(world, "open", 8)
    world.rounds()

    assert {world.placed[name][0][0] for name in ("short", "open")} == {"n1", "n3"}
    world.assert_sound()


def test_a_job_that_fits_nowhere_else_waits_and_says_why() -> None:
    """Shorter ones behind it have their turn; once it is cancelled, it has its own."""
    world = World({"n1": 8})
    world.policy(promises=0)
    plan(world, "n1", 2 * HOUR_S, 3 * HOUR_S)
    long = submit(world, "long", 4, 3)
    world.rounds()
    assert world.cluster.jobs[long].hold is HoldCode.RESERVED
    sentence = told(world, long)
    assert "there is maintenance from 02:00:00 UTC, before it would have ended" in sentence
    assert "8 of 8 are free" in sentence
    submit(world, "long2", 4, 2.5)
    submit(world, "short", 4, 1)
    world.rounds()
    assert world.placed == {"short": [("n1", 4)]}
    world.add(MaintenanceCancelled(at=world.at, node_id=NodeId("n1"), window="w"))
    world.rounds()
    assert world.placed.keys() == {"short", "long"}
    world.assert_sound()


def test_what_waits_is_promised_a_start_when_the_maintenance_is_over() -> None:
    """And gets it then; nothing is placed on the node while it is on."""
    world = World({"n1": 8})
    plan(world, "n1", 2 * HOUR_S, 3 * HOUR_S)
    submit(world, "long", 8, 3)
    said = world.rounds()
    (promise,) = [event for event in said if isinstance(event, StartPromised)]
    assert promise.start == world.at + timedelta(hours=3)
    submit(world, "short", 8, 2)
    world.rounds()
    world.finish(JobId("short"))
    assert world.placed.keys() == {"short"}
    world.wait(2 * HOUR_S + 60)
    assert "JobPlaced" not in names(world.rounds())
    world.wait(HOUR_S)
    world.rounds()

    assert world.placed["long"] == [("n1", 8)]
    world.assert_sound()


def test_a_promise_moves_when_maintenance_is_planned_in_its_way() -> None:
    """To when that is over, or to where there is none."""
    world = World({"n1": 8})
    first = submit(world, "first", 8, 1)
    world.rounds()
    world.start(first)
    submit(world, "next", 8, 4)
    world.rounds()
    plan(world, "n1", 2 * HOUR_S, 6 * HOUR_S)

    (moved,) = [event for event in world.rounds() if isinstance(event, PromiseMoved)]

    assert moved.start == world.at + timedelta(hours=6)
    world.wait(HOUR_S)
    world.finish(first)
    world.rounds()
    assert "next" not in world.placed
    world.assert_sound()


def test_nothing_is_stopped_or_kept_for_a_job_where_it_would_not_end_in_time() -> None:
    """Victims are looked for on the other node; what was set aside is given up when maintenance is planned there."""
    world = World({"n1": 8, "n2": 8})
    world.policy(min_runtime_s=0, cool_down_s=0, promises=0)
    plan(world, "n1", 5 * HOUR_S, 6 * HOUR_S)
    for name in ("a", "b"):
        submit(world, name, 8, 1, priority="low")
    world.rounds()
    for name in ("a", "b"):
        world.start(JobId(name))
    world.rounds()
    on_n2 = next(name for name, at in world.placed.items() if at == [("n2", 8)])
    urgent = submit(world, "u", 8, 10, priority="urgent", team="v")
    world.rounds()

    earmark = world.cluster.earmarks[urgent]
    assert [share.node_id for share in earmark.shares] == ["n2"]
    plan(world, "n2", 9 * HOUR_S, 11 * HOUR_S)
    assert EarmarkDropped in {type(event) for event in world.rounds()}
    assert urgent not in world.cluster.earmarks
    world.end(JobId(on_n2), code=143)
    world.release(JobId(on_n2))
    world.rounds()
    assert "u" not in world.placed


def test_what_is_set_aside_on_a_node_that_is_drained_is_given_up() -> None:
    """So are promises: they move to where work is taken."""
    world = World({"n1": 8, "n2": 8})
    world.policy(min_runtime_s=0, cool_down_s=0)
    for name in ("a", "b"):
        world.submit(name, 8, priority="low", max_runtime_s=HOUR_S)
    world.rounds()
    for name in ("a", "b"):
        world.start(JobId(name))
    world.rounds()
    urgent = submit(world, "u", 8, 1, priority="urgent", team="v")
    firm = submit(world, "f", 8, 1, priority="low")
    world.rounds()
    aside = world.cluster.earmarks[urgent].shares[0].node_id
    assert firm in world.cluster.promises
    world.add(NodeDrainAsked(at=world.at, node_id=aside, reason="fan"))
    said = world.rounds()

    assert EarmarkDropped in {type(event) for event in said}
    assert all(s.node_id != aside for one in world.cluster.earmarks.values() for s in one.shares)
    assert all(s.node_id != aside for one in world.cluster.promises.values() for s in one.shares)
    assert not any(isinstance(event, JobPlaced) and event.shares[0].node_id == aside for event in said)


WINDOWS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 6)), max_size=6)
JOBS = st.lists(
    st.tuples(st.integers(1, 16), st.sampled_from((None, 1, 2, 3, 5, 8)), st.integers(0, 3)), min_size=1, max_size=14
)


@settings(max_examples=40)
@given(WINDOWS, JOBS, st.booleans())
def test_no_run_is_placed_that_would_not_have_ended_before_the_maintenance(
    windows: list[tuple[int, int, int]], jobs: list[tuple[int, int | None, int]], promises: bool
) -> None:
    """Law: of whatever jobs and windows; nothing is placed during one; and all that ever could run does, in the end."""
    world = World({"n1": 8, "n2": 8, "n3": 4, "n4": 4})
    world.policy(promises=8 if promises else 0)
    for number, (node, starts, length) in enumerate(windows):
        plan(world, f"n{node}", starts * HOUR_S, (starts + length) * HOUR_S, f"w{number}")
    for number, (gpus, hours, wait) in enumerate(jobs):
        submit(world, f"j{number}", gpus, hours)
        step(world)
        world.wait(wait * 1_000)
    for _ in range(200):
        if not world.cluster.jobs:
            break
        step(world)
        world.wait(1_800)
        for run in list(world.cluster.runs.values()):
            due = run.end is not None and run.end <= world.at
            if due or run.stopping is not None or (run.end is None and world.at - run.placed_at > timedelta(hours=2)):
                world.finish(run.job_id)
    assert not world.cluster.jobs, {job.job_id: job.hold for job in world.cluster.jobs.values()}
    world.assert_sound()


def step(world: World) -> None:
    """Rounds, each placement of which is held to what is planned."""
    for _ in range(40):
        before = dict(world.cluster.nodes)
        said = world.round()
        for event in said:
            if isinstance(event, JobPlaced):
                check(world, event, before)
        for job in list(world.cluster.jobs.values()):
            run = world.run(job.job_id) if job.state is JobState.PLACED else None
            if run is not None and run.started_at is None and run.stopping is None:
                world.start(job.job_id)
        if not said:
            return
    raise AssertionError("rounds go on for ever")


def check(world: World, placed: JobPlaced, before: dict[NodeId, Any]) -> None:
    """Its nodes are open, and its run ends before what is planned there."""
    asked = (r.event for r in world.records if isinstance(r.event, JobSubmitted))
    spec = next(event.spec for event in asked if event.job_id == placed.job_id)
    time = lasts(spec)
    for share in placed.shares:
        fitness = before[share.node_id].fitness
        assert fitness.drain is None or world.cluster.nodes[share.node_id].fitness.drain is None
        for window in world.cluster.nodes[share.node_id].fitness.windows:
            if time is not None:
                assert world.at + time <= window.starts, (placed, window)
            assert not window.starts <= world.at < window.ends


def test_without_windows_nothing_of_this_is_looked_at() -> None:
    """The index is empty: every class is 0."""
    world = World({"n1": 8})
    submit(world, "a", 8, 100)
    world.rounds()
    assert isinstance(world.cluster, Cluster)
    assert not world.cluster.windows.groups()
    assert not [r for r in world.records if isinstance(r.event, NodeDrainBegun)]
