"""One round: its record comes first and counts what follows, its lines are right and bounded, and it is one append."""

from collections import Counter
from functools import reduce

import pytest
from hypothesis import given

from events.base import Event
from events.head import PassedOver, RoundDecided
from events.job import HoldCode, JobAdmitted, JobPlaced, JobRejected, JobSucceeded, RunStarted
from events.log.port import BATCH_MAX
from projections.cluster.evolve import evolve
from projections.cluster.holds import HELD_MAX
from projections.cluster.job import JobState
from services.admission.decide import ADMITTED_MAX
from services.control.round import PASSED_OVER_MAX, decide_all
from services.scheduler.decide import PLACED_MAX
from tests.clusters import World, names
from tests.histories import History, histories


def record(decided: list[Event]) -> RoundDecided:
    """The first event, which is a decision record."""
    assert isinstance(decided[0], RoundDecided)
    return decided[0]


def test_nothing_to_say_is_no_record() -> None:
    """An idle cluster writes nothing."""
    world = World({"n1": 4})

    assert decide_all(world.cluster, world.tick()) == []


def test_a_round_is_its_record_and_what_all_deciders_said_in_turn() -> None:
    """A job that is asked for and fits is admitted and placed in the same round: each decider sees those before it."""
    world = World({"n1": 4})
    done = world.submit("done", 1)
    world.rounds()
    world.start(done)
    world.end(done)
    world.release(done)
    world.submit("job", 4)
    decided = decide_all(world.cluster, world.tick(), version="9")

    assert names(decided) == ["RoundDecided", "RunStarted", "JobSucceeded", "JobAdmitted", "JobPlaced"]
    head = record(decided)
    assert (head.events, head.epoch, head.decided_at) == (4, world.cluster.epoch, world.tick().position)
    assert (head.version, head.at, head.passed_over) == ("9", world.at, ())


def test_a_round_says_no_more_than_an_append_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all have much to say, as after long outages, the last ones wait: else no round could be written ever again."""
    monkeypatch.setattr("services.control.round.BATCH_MAX", 4)
    world = World({"n1": 4})
    done = world.put(world.submit("done", 1), n1=1)
    world.start(done)
    world.end(done)
    world.release(done)
    world.submit("job", 4)

    decided = decide_all(world.cluster, world.tick())
    assert names(decided) == ["RoundDecided", "RunStarted", "JobSucceeded", "JobAdmitted"]
    head = record(decided)
    assert (head.events, [line.jobs for line in head.passed_over]) == (3, [1])
    world.add(*decided)
    assert names(world.round()) == ["JobPlaced"]
    assert not world.cluster.unread


@given(histories())
def test_the_record_counts_what_follows_and_what_waits(grown: History) -> None:
    """Over random histories: the lines of the record are the jobs in line after the round, by shape and code."""
    decided = decide_all(grown.cluster, grown.tick())
    if not decided:
        return
    head = record(decided)
    assert head.events == len(decided) - 1
    assert not any(isinstance(event, RoundDecided) for event in decided[1:])

    after = reduce(evolve, map(grown.tick().decided, decided), grown.cluster.fork())
    held = HoldCode.FAILED_TOO_OFTEN  # what waits for a person is passed over by nobody
    queued = [job for job in after.jobs.values() if job.state is not JobState.PLACED and job.hold is not held]
    waiting = [job for job in queued if job.not_before is None]
    counts = Counter((str(job.shape), job.hold.value) for job in waiting)
    assert {(line.shape, line.code): line.jobs for line in head.passed_over} == counts
    assert [line.jobs for line in head.passed_over] == sorted(counts.values(), reverse=True)


def test_what_is_passed_over_has_a_line_a_shape_and_code() -> None:
    """Jobs that need the same and wait for the same are one line; what was placed is in none."""
    world = World({"n1": 4})
    for number in range(3):
        world.submit(f"big{number}", 4)
    world.submit("huge", 64)
    world.submit("odd", 1, gpu_types=("b200",))
    head = record(decide_all(world.cluster, world.tick()))

    assert head.passed_over == (
        PassedOver("1 GPU on b200", 1, HoldCode.NO_SUCH_GPU),
        PassedOver("4 GPUs", 1, HoldCode.NO_ROOM),
        PassedOver("4 GPUs", 1, HoldCode.PROMISED),
        PassedOver("64 GPUs", 1, HoldCode.EXCEEDS_CLUSTER),
    )


def test_the_lines_of_a_record_are_bounded_and_the_largest_are_kept() -> None:
    """More shapes than lines: those of which most jobs wait are told."""
    world = World({"n1": 1})
    shapes = PASSED_OVER_MAX + 20
    for number in range(shapes):
        world.submit(f"one{number}", number + 2)
    for number in range(5):
        world.submit(f"more{number}", shapes)
    head = record(decide_all(world.cluster, world.tick()))

    assert len(head.passed_over) == PASSED_OVER_MAX
    assert head.passed_over[0] == PassedOver(f"{shapes} GPUs", 6, HoldCode.EXCEEDS_CLUSTER)


def test_a_burst_is_decided_in_bounded_rounds_that_fit_one_append_each() -> None:
    """Every decider reaches its limit, the rest is the next round's, and all is done after as many as needed."""
    world = World({f"n{number}": 8 for number in range(200)})
    jobs = ADMITTED_MAX + PLACED_MAX + 100
    for number in range(jobs):
        world.submit(f"j{number:05}", 1)
    rounds: list[Counter[str]] = []
    while decided := world.round():
        rounds.append(Counter(names(decided)))
        assert len(decided) < BATCH_MAX
        assert rounds[-1]["JobAdmitted"] <= ADMITTED_MAX
        assert rounds[-1]["JobPlaced"] <= PLACED_MAX
        assert rounds[-1]["JobHeld"] <= HELD_MAX

    assert sum(r["JobAdmitted"] for r in rounds) == jobs
    assert sum(r["JobPlaced"] for r in rounds) == 1600
    assert sum(r["JobHeld"] for r in rounds) == jobs - 1600
    world.assert_sound()


def test_a_round_never_says_two_ends_of_one_job() -> None:
    """Cancelled while all of it had ended and been given back: one outcome."""
    world = World({"n1": 1})
    job = world.submit("job", 1)
    world.rounds()
    world.start(job)
    world.end(job)
    world.release(job)
    world.cancel(job)
    kinds = [type(event) for event in world.rounds()]

    assert kinds == [RunStarted, JobSucceeded]
    assert not {JobAdmitted, JobPlaced, JobRejected} & set(kinds)
    world.assert_sound()
