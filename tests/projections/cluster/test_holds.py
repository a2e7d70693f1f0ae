"""What the log is told of why jobs wait: when it changes, seldom, and not too much at once."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from events.base import JobId
from events.job import HoldCode, JobHeld
from projections.cluster.holds import HELD_MAX, gravest, holds
from projections.cluster.state import Line
from tests.clusters import World


def waiting(jobs: int = 1) -> World:
    """A world in which so many jobs are queued."""
    world = World()
    for number in range(jobs):
        world.submit(f"j{number:04d}", 1)
    return world


def told(world: World, code: HoldCode, jobs: Mapping[JobId, HoldCode | None] | None = None) -> list[JobHeld]:
    """What is said when all lines wait for this."""
    codes: dict[Line, HoldCode] = dict.fromkeys(world.cluster.queue.groups(), code)
    events = holds(world.cluster, world.tick(), world.cluster.queue, codes, jobs=jobs or {})
    return [event for event in events if isinstance(event, JobHeld)]


def test_a_code_is_said_when_it_changes_and_not_again() -> None:
    """However often it is found."""
    world = waiting()
    world.add(*told(world, HoldCode.OVER_LIMIT))
    world.wait(100)

    assert told(world, HoldCode.OVER_LIMIT) == []
    assert [event.code for event in told(world, HoldCode.NO_ROOM)] == [HoldCode.NO_ROOM]


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [
        (HoldCode.NOT_EVALUATED, HoldCode.NO_ROOM, 0),
        (HoldCode.NOT_EVALUATED, HoldCode.NO_SUCH_GPU, 1),
        (HoldCode.NO_SUCH_GPU, HoldCode.NO_ROOM, 1),
    ],
)
def test_where_no_words_are_asked_for_only_what_counts_is_said(before: HoldCode, code: HoldCode, said: int) -> None:
    """What is impossible wants no GPUs: that has to be known; of lines and of single jobs."""
    world = waiting(2)
    if before is not HoldCode.NOT_EVALUATED:
        world.add(*told(world, before))
    quiet = replace(world.tick(), words=False)
    lines = world.cluster.queue.groups()
    single = JobId("j0000")

    assert len(holds(world.cluster, quiet, world.cluster.queue, dict.fromkeys(lines, code), jobs={})) == 2 * said
    assert len(holds(world.cluster, quiet, world.cluster.queue, {}, jobs={single: code})) == said


def test_another_code_waits_half_a_minute() -> None:
    """So that a job whose reasons take turns does not fill the log."""
    world = waiting()
    world.add(*told(world, HoldCode.OVER_LIMIT))
    world.wait(29)
    assert told(world, HoldCode.BEHIND) == []

    world.wait(1)

    assert len(told(world, HoldCode.BEHIND)) == 1


def test_that_a_job_is_possible_again_is_said_at_once() -> None:
    """It wants GPUs again, and what it wants counts from then on."""
    world = waiting()
    world.add(*told(world, HoldCode.EXCEEDS_LIMIT))
    assert not world.cluster.wanted

    world.add(*told(world, HoldCode.OVER_LIMIT))

    assert sum(world.cluster.wanted.values()) == 1


def test_a_round_says_so_much_and_no_more() -> None:
    """The rest is the next round's; nobody is told twice or left out."""
    world = waiting(HELD_MAX + 7)
    first = told(world, HoldCode.OVER_LIMIT)
    world.add(*first)
    second = told(world, HoldCode.OVER_LIMIT)

    assert (len(first), len(second)) == (HELD_MAX, 7)
    assert len({event.job_id for event in first + second}) == HELD_MAX + 7


def test_a_single_job_may_have_a_code_of_its_own() -> None:
    """And of one that the round moved on nothing is said."""
    world = waiting(3)
    said = told(world, HoldCode.NO_ROOM, jobs={JobId("j0001"): HoldCode.PROMISED, JobId("j0002"): None})

    assert {event.job_id: event.code for event in said} == {"j0000": HoldCode.NO_ROOM, "j0001": HoldCode.PROMISED}


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([HoldCode.NO_ROOM, HoldCode.OVER_LIMIT], HoldCode.OVER_LIMIT),
        ([HoldCode.EXCEEDS_LIMIT, HoldCode.QUEUE_PAUSED, HoldCode.NO_ROOM], HoldCode.QUEUE_PAUSED),
        ([HoldCode.NOT_EVALUATED, HoldCode.PROMISED], HoldCode.PROMISED),
        ([HoldCode.NO_SUCH_GPU, HoldCode.BEHIND], HoldCode.NO_SUCH_GPU),
    ],
)
def test_the_gravest_code_is_said(codes: list[HoldCode], code: HoldCode) -> None:
    """Held before impossible, before over quota, before no room."""
    assert gravest(codes) is code
