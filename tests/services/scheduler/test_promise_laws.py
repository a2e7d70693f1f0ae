"""Laws of promises over random workloads: backfilling moves none, and nothing starves."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from events.job import Priority, PromiseCause
from events.policy import JobOrder
from tests.services.scheduler.plays import Ask, Play

NODES = {"n1": 8, "n2": 8, "n3": 4}


@st.composite
def asks(draw: st.DrawFn, *, honest: bool = True) -> list[Ask]:
    """Up to 25 jobs that come close together, and each runs no longer than it declares."""
    found: list[Ask] = []
    at_s = 0
    for _ in range(draw(st.integers(2, 25))):
        at_s += draw(st.integers(0, 40))
        declared_s = draw(st.integers(1, 200))
        runs_s = max(1, declared_s * draw(st.sampled_from((100, 100, 100, 60, 20))) // 100)
        gpus = draw(st.sampled_from((1, 1, 2, 3, 4, 8, 8, 12, 16)))
        found.append(Ask(at_s, gpus, declared_s if honest or draw(st.booleans()) else 0, runs_s, {}))
    return found


@settings(max_examples=40)
@given(asks(), st.sampled_from((1, 2, 100)), st.sampled_from((JobOrder.FIFO, JobOrder.FAIR)))
def test_backfilling_never_moves_a_promise(jobs: list[Ask], promises: int, order: JobOrder) -> None:
    """Where declared runtimes hold, no promise is ever moved to a later start, and each is kept: its job has started by then."""
    play = Play(NODES, promises=promises, order=order)
    play.run(jobs)

    assert len(play.starts) == len(jobs)
    for job_id, starts in play.promised().items():
        known = [start for start in starts if start is not None]
        assert known == sorted(known, reverse=True), (job_id, starts)
        assert play.starts[job_id] <= known[0], (job_id, starts)
    assert play.causes() <= {PromiseCause.EARLIER}
    play.world.assert_sound()


@settings(max_examples=20)
@given(asks(honest=False), st.sampled_from((1, 3)))
def test_whatever_is_declared_every_job_starts(jobs: list[Ask], promises: int) -> None:
    """Jobs that declare nothing stop no other from having its turn, and nothing waits for ever."""
    play = Play(NODES, promises=promises)
    play.run(jobs)

    assert len(play.starts) == len(jobs)
    play.world.assert_sound()


@settings(max_examples=8)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(5, 60), st.booleans()), min_size=50, max_size=60),
    st.sampled_from(tuple(JobOrder)),
)
def test_a_large_gang_starts_under_a_stream_of_small_jobs(stream: list[tuple[int, int, bool]], order: JobOrder) -> None:
    """No starvation: it starts while small ones still come, whether they declare how long they run or not.

    What was there before it is gone after two turns of a minute at the most; small ones come for longer than that.
    """
    small = [
        Ask(number * 3, gpus, runs_s if declares else 0, runs_s, {})
        for number, (gpus, runs_s, declares) in enumerate(stream)
    ]
    gang = Ask(20, 20, 1, 1, {})  # all that there is; the shortest, so that `sjf` too puts it first
    play = Play(NODES, order=order)
    play.run([*small, gang])
    started = play.starts[max(play.starts)]  # the one that was asked for last

    assert started <= play.begin + timedelta(seconds=20 + 2 * 60)
    assert len(play.starts) == len(small) + 1


@settings(max_examples=15)
@given(asks(), st.data())
def test_an_urgent_job_may_overtake_a_promise_and_nothing_else_does(jobs: list[Ask], data: st.DataObject) -> None:
    """With urgent ones among them promises are moved for these alone; all are kept in the end."""
    mixed = [ask._replace(spec={"priority": data.draw(st.sampled_from(list(Priority)))}) for ask in jobs]
    play = Play(NODES, promises=2)
    play.run(mixed)

    assert len(play.starts) == len(jobs)
    assert play.causes() <= {PromiseCause.EARLIER, PromiseCause.OVERTAKEN}
    play.world.assert_sound()
