"""Laws of admission, over queue documents, wishes and runs drawn at random."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from events.base import TeamId
from events.job import Priority
from events.queues import Queue, QueueOrder, QueueStop
from projections.cluster.job import JobState
from projections.cluster.quota.entitlement import Standing
from projections.cluster.quota.tree import ALL_TYPES
from services.admission.decide import decide
from tests.clusters import World
from tests.queues import NAMES, TYPES, documents

LAW = settings(max_examples=60)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Teams with queues, in which something runs, more waits, and the document may have changed meanwhile."""
    world = World({f"n{number}": 4 for number in range(4)})
    world.join("m1", 12, gpu_type="a100")
    world.policy(admitted_ahead=draw(st.integers(0, 2)))
    world.queues(*draw(documents()))
    for number in range(draw(st.integers(0, 12))):
        world.submit(
            f"j{number}",
            draw(st.integers(1, 9)),
            team=draw(st.sampled_from((*NAMES, "f"))),
            gpu_types=draw(st.sampled_from(((), ("h100",), ("a100",), ("a100", "h100")))),
            priority=draw(st.sampled_from(Priority)),
            preemptible=draw(st.booleans()),
        )
        if number == 4:
            world.add(*decide(world.cluster, world.tick()))
            world.queues(*(_ordered(draw, queue) for queue in draw(documents())))
    return world


def _ordered(draw: st.DrawFn, queue: Queue) -> Queue:
    order, stop = draw(st.sampled_from(QueueOrder)), draw(st.sampled_from((*[QueueStop.NONE] * 4, QueueStop.PAUSE)))
    most = draw(st.none() | st.integers(0, 3))
    return Queue(
        name=queue.name, parent=queue.parent, weight=queue.weight, bounds=queue.bounds, order=order, stop=stop,
        running_max=most,
    )  # fmt: skip


@LAW
@given(worlds())
def test_a_second_round_decides_nothing(world: World) -> None:
    """Idempotence: what was withdrawn is not let in again, what was let in not withdrawn, and nothing said twice."""
    world.wait(60)
    world.add(*decide(world.cluster, world.tick()))
    world.wait(60)

    assert decide(world.cluster, world.tick()) == []


@LAW
@given(worlds())
def test_what_is_let_in_keeps_every_limit(world: World) -> None:
    """Of every queue, by its own sum over the jobs below it; and nothing of a stopped queue stays admitted."""
    world.add(*decide(world.cluster, world.tick()))
    cluster = world.cluster
    admitted = [job for job in cluster.jobs.values() if job.state is JobState.ADMITTED]
    standing = Standing(cluster, world.at)
    claims: Counter[tuple[str, str]] = Counter()
    jobs: Counter[str] = Counter()
    for job in admitted:
        assert not cluster.tree.stopped(job.team)
        for name in cluster.tree.path(job.team):
            jobs[name] += 1
            if len(job.shape.gpu_types) == 1:  # where it goes is certain
                claims[name, job.shape.gpu_types[0]] += job.shape.gpus
                claims[name, ALL_TYPES] += job.shape.gpus
    for queue in cluster.queues.values():
        assert queue.running_max is None or jobs[queue.name] <= queue.running_max
        for bounds in queue.bounds:
            claimed = claims[queue.name, bounds.gpu_type]
            assert bounds.limit is None or claimed <= bounds.limit
            if bounds.borrowing_limit is not None and bounds.gpu_type in TYPES:
                floor = standing._shares.floors(bounds.gpu_type)[queue.name]
                assert claimed <= floor + bounds.borrowing_limit


@LAW
@given(worlds())
def test_what_is_let_in_without_borrowing_is_within_the_entitlements(world: World) -> None:
    """As they were before: a claim within them never needs what another one was promised."""
    before = Standing(world.cluster, world.at)
    known = {job.job_id for job in world.cluster.jobs.values() if job.state is JobState.ADMITTED}
    if before.sole:
        return
    world.add(*decide(world.cluster, world.tick()))
    used: Counter[tuple[TeamId, str]] = Counter()
    after = Standing(world.cluster, world.at)
    for job in world.cluster.jobs.values():
        if job.state is JobState.ADMITTED and not job.borrowing and job.job_id not in known:
            used[job.team, after.wants(job.shape.gpu_types)] += job.shape.gpus
    for (team, gpu_type), gpus in used.items():
        if len(world.cluster.tallies) > 1 and not world.cluster.tree.bounds:
            assert gpus <= after.entitled(team, gpu_type)
