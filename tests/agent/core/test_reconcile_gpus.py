"""What an agent does about GPUs that are not as they should be, and about ranks that outlive KILL, as a table."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from agent.core.action import (
    Action,
    Decline,
    ForgetReset,
    FoundClean,
    Join,
    ReportGpu,
    ReportUnkillable,
    Reset,
    Start,
    Stop,
)
from agent.core.found import Found, Step, Stopping, Told, Trace, Why
from agent.core.reconcile import in_question, reconcile
from agent.core.signs import Sign, Telling
from events.base import NodeEpoch
from events.desired import Order
from events.gpu import GpuSignal
from tests.agent.core.test_reconcile import DONE, ENDED, EPOCH, RUN, RUNNING, SHARE, STOPPED, UP, found_of
from tests.agent.core.world import GPUS, desired_of

TELLING = Telling(1, datetime(2026, 1, 1, tzinfo=UTC), Sign(gpu_uuid=GPUS[0], signal=GpuSignal.XID, code=79))
WANTED = replace(desired_of(), resets=GPUS[:2])


def test_words_about_gpus_are_told_in_a_life_of_the_node() -> None:
    """Not before it is known, not once it was given up, and not by an agent that was replaced."""
    found = found_of(tellings=(TELLING,))
    assert reconcile(None, found) == [ReportGpu(EPOCH, TELLING)]
    assert reconcile(None, replace(found, epoch=NodeEpoch(0))) == [Join()]
    assert reconcile(desired_of(lost=True), found) == [Join()]
    assert reconcile(desired_of(epoch=6, instance="other"), found) == []


def test_a_gpu_that_does_not_answer_is_not_clean_and_nothing_is_started_on_it() -> None:
    """The share is declined, so that it is tried elsewhere; the other GPUs are used."""
    missing = frozenset(GPUS[1:2])
    assert reconcile(None, found_of(pooled=frozenset(), missing=missing)) == [
        FoundClean(EPOCH, (GPUS[0], GPUS[2], GPUS[3]))
    ]
    declined = reconcile(desired_of(SHARE), found_of(missing=missing))
    assert declined == [Decline(SHARE, f"GPU {GPUS[1]} does not answer")]
    assert reconcile(desired_of(SHARE), found_of(missing=frozenset(GPUS[2:3]))) == [Start(SHARE)]


@pytest.mark.parametrize(
    "found",
    [
        found_of(busy=frozenset(GPUS[:1])),  # any process, of ours or foreign
        found_of(RUNNING, pooled=frozenset(GPUS)),
        found_of(resetting=frozenset(GPUS[:1])),
        found_of(unready=frozenset(GPUS[:1])),
        found_of(gpus=frozenset(GPUS[1:])),
    ],
)
def test_a_gpu_is_reset_once_nothing_holds_it_and_when_it_is_its_time(found: Found) -> None:
    """The other one that is wanted reset does not wait for it, unless the same run has both."""
    held_both = bool(found.traces)
    assert Reset(GPUS[0]) not in reconcile(WANTED, found)
    assert (Reset(GPUS[1]) in reconcile(WANTED, found)) is not held_both
    assert reconcile(WANTED, found_of()) == [Reset(GPUS[0]), Reset(GPUS[1])]


def test_a_gpu_of_a_share_that_is_still_named_is_not_reset() -> None:
    """Also when nothing of it lives: its release may not be in the log yet, or it is about to start."""
    ended = replace(ENDED, told=frozenset({Told.STARTED, Told.ENDED, Told.RELEASED}))
    assert reconcile(replace(WANTED, shares=(STOPPED,)), found_of(ended)) == []
    assert reconcile(replace(WANTED, shares=(SHARE,)), found_of()) == [Start(SHARE)]


@pytest.mark.parametrize(
    "desired",
    [None, replace(WANTED, epoch=NodeEpoch(4)), replace(WANTED, instance="other"), replace(WANTED, lost=True)],
)
def test_resets_are_obeyed_in_the_life_they_were_written_for(desired: object) -> None:
    """And by the agent that was meant."""
    assert not any(isinstance(action, Reset) for action in reconcile(desired, found_of()))  # type: ignore[arg-type]


def test_nothing_is_reset_or_started_beside_what_is_left_of_others() -> None:
    """Whose GPUs the leftovers hold is not known; nor does a share start on a GPU that is being reset."""
    assert not any(isinstance(action, Reset) for action in reconcile(WANTED, found_of(leftovers=True)))
    assert reconcile(desired_of(SHARE), found_of(resetting=frozenset(GPUS[:1]))) == []


def test_what_was_tried_is_forgotten_when_it_is_no_longer_wanted() -> None:
    """Then the next time is a first one; not in the middle of it, and not on nobody's word."""
    tried = found_of(tried=frozenset(GPUS), unready=frozenset(GPUS), resetting=frozenset(GPUS[3:]))
    assert reconcile(WANTED, tried) == [ForgetReset(GPUS[2])]
    assert reconcile(None, tried) == []


def test_whether_a_process_holds_them_is_asked_of_gpus_that_are_to_be_reset() -> None:
    """As of those that a share waits for, and of no others."""
    assert in_question(WANTED, found_of(unready=frozenset(GPUS[:1]))) == set(GPUS[1:2])
    assert in_question(desired_of(), found_of()) == frozenset()


@pytest.mark.parametrize(("killed_s", "told"), [(59.9, False), (60.0, True)])
def test_ranks_that_outlive_kill_are_told_once(killed_s: float, told: bool) -> None:
    """KILL is sent on and on; nothing is released."""
    stopping = Stopping(Why.ORDER, 100.0, Step.KILL, killed_s)
    trace = replace(RUNNING, stopping=stopping, pids=(7, 8))
    kill: list[Action] = [Stop(RUN, Why.ORDER, Step.KILL, STOPPED.cause, 0.0)]
    report = ReportUnkillable(EPOCH, RUN, (7, 8), 60)

    actions = reconcile(desired_of(STOPPED), found_of(trace))

    assert actions == kill + [report] * told
    again = replace(trace, told=trace.told | {Told.UNKILLABLE})
    assert reconcile(desired_of(STOPPED), found_of(again)) == kill


def test_ranks_that_were_not_killed_or_have_ended_are_not_unkillable() -> None:
    """However long the stop takes that their job was given, and however late its end is told."""
    for ranks, step, killed_s in ((UP, Step.TERM, 0.0), (DONE, Step.KILL, 1_000.0)):
        trace = Trace(share=SHARE, epoch=EPOCH, ranks=ranks, stopping=Stopping(Why.ORDER, 1.0, step, killed_s))
        actions = reconcile(desired_of(replace(SHARE, order=Order.STOP)), found_of(trace))
        assert not any(isinstance(action, ReportUnkillable) for action in actions)
