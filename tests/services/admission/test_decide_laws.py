"""Laws of admission, over queue documents, wishes and runs drawn at random."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from events.base import Event, JobId, TeamId
from events.job import HoldCode, JobAdmitted, JobHeld, Priority
from events.queues import Bounds, Queue, QueueOrder, QueueStop
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


@st.composite
def floored(draw: st.DrawFn) -> World:
    """Queues with floors over all types below one that has a floor of a type; jobs about as large, mostly firm."""
    world = World({"n1": 8})
    world.join("m1", 6, gpu_type="a100")
    above = Bounds(gpu_type=draw(st.sampled_from(TYPES)), floor=draw(st.integers(0, 3)))
    below = [
        Queue(name=TeamId(name), parent="a", bounds=(Bounds(floor=draw(st.integers(0, 4))),)) for name in ("b", "c")
    ]
    world.queues(Queue(name=TeamId("a"), bounds=(above,)), *below, Queue(name=TeamId("d")))
    for number in range(draw(st.integers(1, 5))):
        world.submit(
            f"j{number}",
            draw(st.integers(1, 4)),
            team=draw(st.sampled_from("bbcd")),
            gpu_types=draw(st.sampled_from(((), (), ("h100",), ("a100",)))),
            preemptible=draw(st.integers(0, 3)) == 0,
        )
    return world


@settings(max_examples=150)
@given(floored(), st.data())
def test_what_is_decided_follows_from_the_jobs_and_not_from_what_the_log_says_of_them(
    world: World, data: st.DataObject
) -> None:
    """Floors follow what is wanted, and that what the log says: it must not come back from there, round after round."""
    codes = st.sampled_from((HoldCode.NOT_EVALUATED, HoldCode.EXCEEDS_FLOOR, HoldCode.OVER_FLOOR, HoldCode.NO_ROOM))
    first = decide(world.cluster, world.tick())
    for job in list(world.cluster.jobs.values()):
        world.add(JobHeld(at=world.at, team=job.team, job_id=job.job_id, code=data.draw(codes)))
    world.wait(60)
    again = decide(world.cluster, world.tick())
    assert let_in(again) == let_in(first)
    world.add(*again)
    world.wait(60)

    assert decide(world.cluster, world.tick()) == []


def let_in(events: Sequence[Event]) -> list[tuple[JobId, bool]]:
    """The jobs that are admitted, and whether they borrow."""
    return [(event.job_id, event.borrowing) for event in events if isinstance(event, JobAdmitted)]


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
