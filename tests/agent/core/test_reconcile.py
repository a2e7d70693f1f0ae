"""What an agent does in one situation after the other, as a table."""

import pytest
from msgspec.structs import replace

from agent.core.action import (
    Decline,
    Describe,
    EndLeftovers,
    Forget,
    FoundClean,
    Join,
    Release,
    ReportEnded,
    ReportSaved,
    ReportStarted,
    Start,
    Stop,
)
from agent.core.found import Exit, Found, Phase, Rank, Step, Stopping, Told, Trace, Why
from agent.core.reconcile import reconcile
from events.base import NodeEpoch
from events.desired import Order
from events.job import OnLost, StopCause
from events.node import EndReason
from tests.agent.core.world import GPUS, ME, desired_of, share_of, with_checkpoint

EPOCH = NodeEpoch(5)
SHARE = share_of(0)
STOPPED = replace(SHARE, order=Order.STOP, cause=StopCause.CANCEL)
UP = (Rank(0, Phase.RUNNING), Rank(1, Phase.RUNNING))
DONE = (Rank(0, Phase.EXITED), Rank(1, Phase.EXITED))
RUNNING = Trace(share=SHARE, epoch=EPOCH, ranks=UP, told=frozenset({Told.STARTED}))
ENDED = Trace(share=SHARE, epoch=EPOCH, ranks=DONE, told=frozenset({Told.STARTED}))
RUN = SHARE.run_id


def found_of(*traces: Trace, **fields: object) -> Found:
    """A node in its fifth life, all its GPUs in the pool."""
    found = Found(
        instance=ME,
        epoch=EPOCH,
        gpus=frozenset(GPUS),
        pooled=frozenset(GPUS),
        traces={trace.share.run_id: trace for trace in traces},
    )
    return replace(found, **fields)


def exited(code: int = 0, rank: int = -1, reason: EndReason = EndReason.EXITED, **fields: object) -> ReportEnded:
    """The report of an end."""
    return ReportEnded(EPOCH, RUN, replace(Exit(reason, code, rank), **fields))


RELEASE = Release(EPOCH, RUN, SHARE.slots)


def test_a_share_starts_once_its_gpus_are_clean() -> None:
    """Not before, and never with a trace of it."""
    wanted = desired_of(SHARE)

    assert reconcile(wanted, found_of()) == [Start(SHARE)]
    assert reconcile(wanted, found_of(busy=frozenset(GPUS[:1]))) == []
    assert reconcile(wanted, found_of(RUNNING)) == []


def test_other_words_for_a_node_are_told_in_its_life_and_with_a_new_one() -> None:
    """Beside what is clean; not by an agent that was replaced, nor in a life that was given up."""
    other = found_of(described=False)
    assert reconcile(None, other) == [Describe(EPOCH)]
    assert reconcile(None, replace(other, pooled=frozenset(GPUS[1:]))) == [Describe(EPOCH), FoundClean(EPOCH, GPUS[:1])]
    assert reconcile(None, replace(other, leftovers=True)) == [EndLeftovers(), Describe(EPOCH)]
    assert reconcile(None, replace(other, epoch=NodeEpoch(0))) == [Join()]
    assert reconcile(desired_of(epoch=6, instance="other"), other) == []
    assert reconcile(desired_of(lost=True), other) == [Join()]


def test_a_checkpoint_is_told_while_the_end_is_not() -> None:
    """Before it, where both are due; one of an earlier boot is nobody's."""
    saved = replace(RUNNING, saved=7)
    assert reconcile(desired_of(SHARE), found_of(saved)) == [ReportSaved(EPOCH, RUN, 7)]
    due = reconcile(desired_of(SHARE), found_of(replace(ENDED, saved=7)))
    assert due == [ReportSaved(EPOCH, RUN, 7), exited(), RELEASE]
    told = replace(ENDED, saved=7, told=frozenset({Told.STARTED, Told.ENDED}))
    assert reconcile(desired_of(SHARE), found_of(told)) == [RELEASE]
    assert reconcile(None, found_of(saved)) == []


def test_an_agent_takes_its_node_back_from_one_that_it_was_before() -> None:
    """What ran is ended first or with it; of a life of that one which is older nothing comes."""
    booted = found_of(RUNNING, former=frozenset({"before"}))
    late = desired_of(SHARE, epoch=6, instance="before")
    assert Join() in reconcile(late, booted)
    assert Join() not in reconcile(late, found_of(RUNNING))
    assert reconcile(replace(late, epoch=NodeEpoch(4)), booted) == reconcile(None, booted)


@pytest.mark.parametrize(
    "desired",
    [None, desired_of(SHARE, epoch=4), desired_of(SHARE, instance="other"), desired_of(SHARE, lost=True, epoch=4)],
)
def test_what_was_written_for_another_life_is_not_obeyed(desired: object) -> None:
    """Nothing starts, and what runs is left alone."""
    assert reconcile(desired, found_of()) == []  # type: ignore[arg-type]
    assert reconcile(desired, found_of(RUNNING)) == []  # type: ignore[arg-type]


def test_a_life_begins_by_joining_and_gpus_come_one_by_one() -> None:
    """First the join alone, then what is clean; what is held comes later."""
    assert reconcile(None, found_of(epoch=NodeEpoch(0))) == [Join()]
    busy = found_of(pooled=frozenset(), busy=frozenset(GPUS[:1]))
    assert reconcile(None, busy) == [FoundClean(EPOCH, GPUS[1:])]
    assert reconcile(None, found_of(pooled=frozenset(GPUS[:3]))) == [FoundClean(EPOCH, GPUS[3:])]


def test_leftovers_go_before_anything_is_clean() -> None:
    """Whose they are is not known, so what they hold is not."""
    found = found_of(pooled=frozenset(), leftovers=True)

    assert reconcile(desired_of(SHARE), found) == [EndLeftovers()]


def test_a_stop_takes_its_rungs_in_their_time() -> None:
    """Checkpoint, grace, TERM, grace, KILL; each once, the last again and again."""
    share = share_of(0, **with_checkpoint(20))
    wanted = desired_of(replace(share, order=Order.STOP, cause=StopCause.CANCEL))

    def at(age_s: float, step: Step) -> list[object]:
        trace = replace(RUNNING, share=share, stopping=Stopping(Why.ORDER, age_s, step))
        return list(reconcile(wanted, found_of(trace)))

    def stop(step: Step, grace_s: float) -> list[object]:
        return [Stop(RUN, Why.ORDER, step, StopCause.CANCEL, grace_s)]

    assert reconcile(wanted, found_of(replace(RUNNING, share=share))) == stop(Step.CHECKPOINT, 25)
    assert at(19, Step.CHECKPOINT) == []
    assert at(20, Step.CHECKPOINT) == stop(Step.TERM, 5)
    assert at(24, Step.TERM) == []
    assert at(25, Step.TERM) == stop(Step.KILL, 0)
    assert at(26, Step.KILL) == stop(Step.KILL, 0)


@pytest.mark.parametrize(
    ("ranks", "stopping", "report"),
    [
        (DONE, None, exited()),
        ((Rank(0, Phase.EXITED, 143, 9.0), Rank(1, Phase.EXITED, 3, 8.0)), Stopping(Why.RANK_FAILED), exited(3, 1)),
        (DONE, Stopping(Why.ORDER), exited(reason=EndReason.STOPPED)),
        (DONE, Stopping(Why.TIME_LIMIT), exited(reason=EndReason.TIME_LIMIT)),
        (
            DONE,
            Stopping(Why.ISOLATED),
            exited(reason=EndReason.STOPPED, message="the node was without contact", isolated=True),
        ),
        (
            (Rank(0, Phase.REFUSED, 127, 1.0, "cannot"), Rank(1, Phase.EXITED, 143, 2.0)),
            Stopping(Why.START_FAILED),
            exited(127, 0, EndReason.START_FAILED, message="cannot"),
        ),
        (
            (Rank(0, Phase.EXITED), Rank(1, Phase.LOST, 137, 0.0, "lost")),
            None,
            exited(137, 1, EndReason.NODE_REBOOTED, message="lost"),
        ),
        (
            (Rank(0, Phase.EXITED, 1, 5.0), Rank(1, Phase.LOST, 137, 9.0, "lost")),
            Stopping(Why.RANK_FAILED),
            exited(1, 0),
        ),
    ],
)
def test_an_end_is_told_as_it_was(ranks: tuple[Rank, ...], stopping: Stopping | None, report: ReportEnded) -> None:
    """By the first reason, with the code of the rank that failed first; then the GPUs are released."""
    trace = replace(ENDED, ranks=ranks, stopping=stopping)

    assert reconcile(desired_of(STOPPED), found_of(trace)) == [report, RELEASE]


def test_what_was_accepted_is_not_told_again() -> None:
    """And with everything told there is nothing to do until the run has left desired."""
    ended = replace(ENDED, told=ENDED.told | {Told.ENDED})
    wanted = desired_of(SHARE)

    assert reconcile(wanted, found_of(replace(ENDED, told=frozenset()))) == [
        ReportStarted(EPOCH, RUN),
        exited(),
        RELEASE,
    ]
    assert reconcile(wanted, found_of(ended)) == [RELEASE]
    assert reconcile(wanted, found_of(ended, busy=frozenset(GPUS[:1]))) == []
    assert reconcile(wanted, found_of(replace(ended, told=ended.told | {Told.RELEASED}))) == []
    assert reconcile(desired_of(), found_of(ended)) == [Forget(RUN)]
    assert reconcile(desired_of(), found_of(replace(ended, shipped=False))) == []


def test_a_stop_of_what_never_ran_is_noted_and_released() -> None:
    """The note keeps it from ever starting."""
    assert reconcile(desired_of(STOPPED), found_of()) == [Decline(STOPPED)]
    declined = Trace(share=STOPPED, epoch=EPOCH, declined=True)
    told = [exited(reason=EndReason.NEVER_STARTED), RELEASE]
    assert reconcile(desired_of(STOPPED), found_of(declined)) == told
    assert reconcile(desired_of(SHARE), found_of(declined)) == told


def test_a_gpu_that_the_node_does_not_have_is_a_failed_start() -> None:
    """It could wait for ever."""
    assert reconcile(desired_of(SHARE), found_of(gpus=frozenset(GPUS[1:]), pooled=frozenset(GPUS[1:]))) == [
        Decline(SHARE, "GPU GPU-0 is not on this node")
    ]


def test_runs_of_another_boot_ended_with_it() -> None:
    """Unless their ends were all written down before; reported only while they are named."""
    old = replace(ENDED, this_boot=False, epoch=NodeEpoch(2), ranks=(Rank(0, Phase.EXITED), Rank(1, Phase.LOST, 137)))

    assert reconcile(desired_of(SHARE), found_of(old)) == [exited(reason=EndReason.NODE_REBOOTED), RELEASE]
    assert reconcile(desired_of(SHARE), found_of(replace(old, ranks=DONE))) == [exited(), RELEASE]
    assert reconcile(desired_of(), found_of(old)) == [Forget(RUN)]


@pytest.mark.parametrize(
    ("trace", "fields", "why"),
    [
        (replace(RUNNING, ranks=(Rank(0, Phase.EXITED, 1), UP[1])), {}, Why.RANK_FAILED),
        (replace(RUNNING, ranks=(Rank(0, Phase.REFUSED, 127), UP[1])), {}, Why.START_FAILED),
        (replace(RUNNING, share=share_of(0, max_runtime_s=60), age_s=60.0), {}, Why.TIME_LIMIT),
        (RUNNING, {"silent_s": 50.0, "lost_after_s": 60.0}, Why.ISOLATED),
        (replace(RUNNING, epoch=NodeEpoch(4)), {}, Why.DEAD_EPOCH),
    ],
)
def test_a_node_stops_ranks_by_itself(trace: Trace, fields: dict[str, object], why: Why) -> None:
    """For reasons of its own, whatever is desired."""
    [stop] = reconcile(desired_of(SHARE), found_of(trace, **fields))

    assert isinstance(stop, Stop)
    assert (stop.why, stop.step) == (why, Step.TERM)


@pytest.mark.parametrize(
    ("share", "silent_s"),
    [(SHARE, 49.0), (share_of(0, on_lost=OnLost.WAIT), 1_000.0), (share_of(0, max_runtime_s=65), 0.0)],
)
def test_a_node_lets_ranks_be_while_it_may(share: object, silent_s: float) -> None:
    """Not silent long enough; not to be started elsewhere; not over its time."""
    trace = replace(RUNNING, share=share, age_s=64.0)

    assert reconcile(desired_of(SHARE), found_of(trace, silent_s=silent_s, lost_after_s=60.0)) == []


def test_a_node_without_contact_is_done_before_others_begin() -> None:
    """A long grace is pressed together: silence and stop take less than the time after which the node is lost."""
    share = share_of(0, **with_checkpoint(300))
    trace = replace(RUNNING, share=share, stopping=Stopping(Why.ISOLATED, 15.0, Step.TERM))

    [begun] = reconcile(None, found_of(replace(RUNNING, share=share), silent_s=30.0, lost_after_s=60.0))
    [killed] = reconcile(None, found_of(trace, silent_s=45.0, lost_after_s=60.0))

    assert (begun.step, killed.step) == (Step.CHECKPOINT, Step.KILL)  # type: ignore[union-attr]


def test_a_node_without_contact_starts_nothing() -> None:
    """What is desired may be over by now."""
    assert reconcile(desired_of(SHARE), found_of(silent_s=50.0, lost_after_s=60.0)) == []
