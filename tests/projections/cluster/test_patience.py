"""How long a silent node is waited for: by the worked example, by its bounds, and by what makes a restart dear."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import JobId, NodeId, RunId
from events.fleet import Patience
from events.job import OnLost, RunStopping, StopCause
from events.node import CheckpointSaved
from projections.cluster.node import Node
from projections.cluster.patience import bounded, costs, may_restart, waiting
from projections.cluster.snapshot import dump, load
from tests.clusters import World, names

N1 = NodeId("n1")


def saved(world: World, job: str, number: int = 1, node: str = "n1") -> None:
    """A checkpoint of the job is safe."""
    run, held = world.run(JobId(job)), world.cluster.nodes[NodeId(node)]
    assert run is not None
    world.add(
        CheckpointSaved(
            at=world.at, node_id=held.node_id, node_epoch=held.epoch, run_id=RunId(run.run_id), number=number
        )
    )


def running(world: World, job_id: JobId) -> None:
    """All its ranks have started, and that is said."""
    world.start(job_id)
    assert "RunStarted" in names(world.round())


def the_example() -> World:
    """A gang on 64 nodes that saved 8 minutes ago, and a run of 8 GPUs that started 3 minutes ago, both on n1."""
    world = World({f"n{n}": 16 if n == 1 else 8 for n in range(1, 65)})
    gang = world.put(world.submit("gang", 512), **{f"n{n}": 8 for n in range(1, 65)})
    running(world, gang)
    saved(world, "gang")
    world.wait(300)
    running(world, world.put(world.submit("small", 8), n1=8))
    world.wait(180)
    return world


def test_the_worked_example() -> None:
    """As in the module's docstring, to the millisecond."""
    world = the_example()
    node = world.cluster.nodes[N1]

    cost = costs(world.cluster, node, world.at)

    assert (cost.gpus, cost.restart_gpu_s, cost.even_s) == (520, 309_600.0, 595.385)
    assert bounded(cost.even_s, world.cluster.policy) == (595.385, Patience.COST)
    saved(world, "gang", 2)
    saved(world, "small", 1)
    assert costs(world.cluster, world.cluster.nodes[N1], world.at).even_s == 120.0


@pytest.mark.parametrize(
    ("even_s", "said"),
    [
        (0.0, (90.0, Patience.LEAST)),
        (90.0, (90.0, Patience.LEAST)),
        (90.1, (90.1, Patience.COST)),
        (899.9, (899.9, Patience.COST)),
        (900.0, (900.0, Patience.MOST)),
        (1e9, (900.0, Patience.MOST)),
    ],
)
def test_it_is_bounded_by_policy(even_s: float, said: tuple[float, Patience]) -> None:
    """And what bounds it is said."""
    assert bounded(even_s, World().cluster.policy) == said


def test_a_most_that_is_less_than_the_least_counts_as_that() -> None:
    """Then what a restart costs does not matter."""
    world = World()
    world.policy(lost_after_s=200.0, lost_most_s=100.0)
    assert [bounded(even_s, world.cluster.policy)[0] for even_s in (0.0, 150.0, 1_000.0)] == [200.0] * 3


def test_a_run_that_is_stopped_has_nothing_to_lose() -> None:
    """Waiting for its node costs its GPUs, and saves nothing."""
    world = the_example()
    run = world.run(JobId("gang"))
    assert run is not None
    ids = {"at": world.at, "team": run.team, "job_id": run.job_id, "run_id": run.run_id}
    world.add(RunStopping(**ids, cause=StopCause.CANCEL))  # type: ignore[arg-type]

    cost = costs(world.cluster, world.cluster.nodes[N1], world.at)

    assert (cost.gpus, cost.restart_gpu_s) == (520, 8 * 300.0)


def test_a_run_that_has_not_started_loses_its_start_only() -> None:
    """It has done nothing yet."""
    world = World({"n1": 8})
    world.put(world.submit("job", 8), n1=8)
    world.wait(600)
    assert costs(world.cluster, world.cluster.nodes[N1], world.at).even_s == 120.0


def test_what_was_saved_after_the_node_fell_silent_costs_nothing_less() -> None:
    """Another node of the gang reported it: work that is older than the silence is safe, and none is counted below 0."""
    world = the_example()
    heard = world.at
    world.wait(60)
    saved(world, "gang", 2, node="n2")
    saved(world, "small", 1)
    assert costs(world.cluster, world.cluster.nodes[N1], heard).even_s == 120.0


def test_a_node_that_holds_nothing_is_waited_for_the_least() -> None:
    """And is told so."""
    world = World({"n1": 8})
    node = world.cluster.nodes[N1]
    assert costs(world.cluster, node, world.at).even_s == 0.0
    told = waiting(world.cluster, node)
    assert [told.after(passed_s) for passed_s in (0.0, 1e6)] == [90.0, 90.0]
    assert not may_restart(world.cluster, node)


@pytest.mark.parametrize(("on_lost", "may"), [(OnLost.RESTART, True), (OnLost.WAIT, False)])
def test_only_what_may_restart_has_to_end_before(on_lost: OnLost, *, may: bool) -> None:
    """A job that waits for its node is started nowhere else."""
    world = World({"n1": 8})
    world.put(world.submit("job", 8, on_lost=on_lost), n1=8)
    assert may_restart(world.cluster, world.cluster.nodes[N1]) is may


@given(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(0, 400))
def test_what_a_node_was_told_is_what_it_is_waited_for_however_much_later(
    ran_s: int, later_s: int, least_s: int
) -> None:
    """While nothing is saved, what was told grows as the cost does: no word of it need be told again."""
    world = World({"n1": 8})
    world.policy(lost_after_s=31.0 + least_s)
    running(world, world.put(world.submit("job", 8), n1=8))
    world.wait(ran_s)
    world.policy(lost_after_s=31.0 + least_s)  # the fold's last record is of now
    told = waiting(world.cluster, world.cluster.nodes[N1])
    heard = world.at + timedelta(seconds=later_s)

    cost = costs(world.cluster, world.cluster.nodes[N1], heard)

    assert bounded(cost.even_s, world.cluster.policy)[0] == pytest.approx(told.after(later_s), abs=0.002)


@given(st.permutations(["a", "b", "c"]), st.tuples(*[st.integers(1, 7)] * 3), st.tuples(*[st.integers(0, 10**9)] * 3))
def test_the_costs_are_the_same_in_any_order(order: list[str], gpus: tuple[int, ...], waits: tuple[int, ...]) -> None:
    """To the last digit: a snapshot knows the runs of a node in another order than the log that it was made of."""
    world = World({"n1": 21})
    for name, wanted, micros in zip(order, gpus, waits, strict=True):
        running(world, world.put(world.submit(name, wanted), n1=wanted))
        world.at += timedelta(microseconds=micros)
    restored = load(dump(world.cluster), log_id="test")
    assert restored is not None
    node: Node = restored.nodes[N1]
    assert costs(restored, node, world.at) == costs(world.cluster, world.cluster.nodes[N1], world.at)
