"""How reservations are resolved: what is charged, waived, uncovered and given back, for every end that a run can have."""

from typing import Any

import pytest

from events.accounts import Account
from events.base import JobId, NodeId
from events.credit import (
    CreditCommitted,
    CreditRefunded,
    EndedAs,
    RefundCause,
    UsageUncovered,
)
from events.job import JobRequeued, StopCause
from events.node import CheckpointSaved, EndReason
from events.policy import Bearer, ChargeFrom, Waived
from services.control.round import decide_all
from services.ledger import settle
from tests.clusters import names
from tests.purses import CREDIT, GPU_HOUR_US, A, Purse, told

N1 = NodeId("n1")
OTHERS = {"UsageRecorded", "CreditReserved", "CreditAdjusted"}  # told elsewhere, or admission's
EVERY_END = [
    (StopCause.CANCEL, EndedAs.CANCELLED),
    (StopCause.TIME_LIMIT, EndedAs.TIME_LIMIT),
    (StopCause.CREDITS, EndedAs.CREDITS),
    (StopCause.PREEMPTED, EndedAs.PREEMPTED),
    (StopCause.CONSOLIDATED, EndedAs.CONSOLIDATED),
    (StopCause.QUEUE_HELD, EndedAs.QUEUE_HELD),
]


def save(world: Purse, job_id: JobId, number: int = 1) -> None:
    """The job has a checkpoint."""
    run = world.run(job_id)
    assert run is not None
    share = run.shares[0]
    ids: dict[str, Any] = {"node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run.run_id}
    world.add(CheckpointSaved(at=world.at, **ids, number=number))


def over(world: Purse, job_id: JobId, cause: StopCause | None = None) -> list[tuple[str, float]]:
    """The run ends, for a cause if there is one, and a round says what became of its reservation."""
    if cause is not None:
        world.stopped(job_id, cause)
    world.end(job_id, code=0 if cause is None else 143, reason=EndReason.STOPPED if cause else EndReason.EXITED)
    world.release(job_id)
    said = world.round()
    world.assert_sound()
    return [entry for entry in told(said) if entry[0] not in OTHERS]


def committed(world: Purse) -> CreditCommitted:
    """The last commit."""
    return [entry for entry in world.entries() if isinstance(entry, CreditCommitted)][-1]


def refunds(world: Purse) -> list[CreditRefunded]:
    """All refunds."""
    return [entry for entry in world.entries() if isinstance(entry, CreditRefunded)]


def test_what_was_used_is_committed_and_the_rest_refunded() -> None:
    """Half an hour of two GPUs, of one that was reserved."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(1_800)

    assert over(world, job) == [("CreditCommitted", 1.0), ("CreditRefunded", 1.0)]
    assert (committed(world).outcome, committed(world).gpu_us) == (EndedAs.SUCCEEDED, GPU_HOUR_US)
    assert refunds(world)[-1].cause is RefundCause.UNUSED
    assert world.book().balance == 999 * CREDIT


@pytest.mark.parametrize(("cause", "outcome"), EVERY_END, ids=[cause.value for cause, _ in EVERY_END])
def test_a_run_without_a_checkpoint_is_charged_by_how_it_ended(cause: StopCause, outcome: EndedAs) -> None:
    """In full, unless it had to make room: what it lost, all of it here, is waived."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(1_800)
    said = over(world, job, cause)

    waived = outcome in settle.WAIVED
    assert said == ([("CreditCommitted", 0.0)] if waived else [("CreditCommitted", 1.0)]) + (
        [("CreditRefunded", 1.0)] * (2 if waived else 1)
    )
    assert committed(world).outcome is outcome
    assert world.book().committed == (0 if waived else CREDIT)


def test_a_rank_that_fails_by_itself_is_charged() -> None:
    """Nobody else is to blame."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(1_800)
    world.end(job, code=1)
    world.release(job)
    world.round()

    assert (committed(world).outcome, committed(world).amount_micro) == (EndedAs.FAILED, CREDIT)


@pytest.mark.parametrize(("waived", "charged"), [(Waived.ALL, 0.0), (Waived.LOST, 2.0), (Waived.NONE, 3.0)])
def test_what_a_lost_node_cost_a_run_is_waived_as_the_policy_says(waived: Waived, charged: float) -> None:
    """Two GPUs, saved after an hour, heard last half an hour later: the use ends there, not when the loss was noticed."""
    world = Purse({"n1": 2}, waived_failed=waived)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=7_200)
    world.round()
    world.wait(3_600)
    save(world, job)
    world.wait(1_800 + 90)
    world.round({N1: 90.0})
    said = world.round()

    assert next(event for event in said if isinstance(event, JobRequeued)).cause is StopCause.NODE_LOST
    assert committed(world).amount_micro == charged * CREDIT
    causes = {refund.cause: refund for refund in refunds(world)}
    lost = causes.get(RefundCause.INTERRUPTED)
    assert (lost.amount_micro / CREDIT if lost is not None else 0.0) == 3.0 - charged
    if lost is not None:
        assert lost.gpu_us == (3.0 - charged) * GPU_HOUR_US
        assert len(lost.evidence) == 1  # the word that the node is lost
    assert causes[RefundCause.UNUSED].amount_micro == CREDIT
    assert world.book().balance == (1_000 - charged) * CREDIT
    world.assert_sound()


def test_gpus_that_come_back_without_a_word_are_evidence_of_that() -> None:
    """It is taken as lost: what it used is waived as the policy says, and the refund names what proves it."""
    world = Purse({"n1": 2}, waived_failed=Waived.ALL)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=7_200)
    world.round()
    world.wait(1_800)
    world.release(job)
    released = world.records[-1].id
    world.round()

    waived = next(refund for refund in refunds(world) if refund.cause is RefundCause.INTERRUPTED)
    assert (waived.amount_micro, waived.evidence) == (CREDIT, (released,))
    world.assert_sound()


def test_a_new_leader_makes_no_silence_shorter() -> None:
    """It counts anew since it began to listen; a node that was suspect by then was heard last before."""
    world = Purse({"n1": 2}, waived_failed=Waived.NONE)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=7_200)
    world.round()
    world.wait(1_800 + 30)
    world.round({N1: 30.0})
    world.wait(600)  # and nobody leads for so long
    world.round({N1: 90.0})
    world.rounds()

    assert world.run(job) is None
    assert committed(world).amount_micro == CREDIT
    world.assert_sound()


@pytest.mark.parametrize(("waived", "charged"), [(Waived.ALL, 0.0), (Waived.LOST, 2.0), (Waived.NONE, 3.0)])
def test_a_run_that_made_room_is_charged_as_the_policy_says(waived: Waived, charged: float) -> None:
    """Up to its last checkpoint, by default."""
    world = Purse({"n1": 2}, waived_preempted=waived)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=7_200)
    world.wait(3_600)
    save(world, job)
    world.wait(1_800)
    over(world, job, StopCause.PREEMPTED)

    assert committed(world).amount_micro == charged * CREDIT
    assert (
        world.book().balance + world.book().reserved == (1_000 - charged) * CREDIT
    )  # what it waits for now is reserved


def test_saved_work_beyond_what_was_used_is_no_more_than_that() -> None:
    """A checkpoint that is reported after the node was heard last: it counts up to there."""
    world = Purse({"n1": 1, "n2": 1})
    job = world.paid("job", on={"n1": 1, "n2": 1}, max_runtime_s=7_200)
    world.round()
    world.wait(3_600)
    save(world, job)  # by n1; n2 has not been heard for a minute
    world.wait(30)
    world.round({NodeId("n2"): 90.0})
    world.end(job, "n1", code=1)
    world.release(job, "n1")
    world.round()

    assert committed(world).gpu_us == GPU_HOUR_US + (3_600 - 60) * 1_000_000 + 30 * 1_000_000
    world.assert_sound()


@pytest.mark.parametrize("bearer", list(Bearer))
def test_what_was_used_beyond_the_reservation_is_borne_as_the_policy_says(bearer: Bearer) -> None:
    """An hour was reserved, an hour and a half used: the half is uncovered, and owed where the account bears it."""
    world = Purse({"n1": 2}, uncovered=bearer)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(5_400)
    said = over(world, job)

    assert said == [("UsageUncovered", 1.0), ("CreditCommitted", 2.0)]
    uncovered = next(entry for entry in world.entries() if isinstance(entry, UsageUncovered))
    assert uncovered.bearer is bearer
    owed = CREDIT if bearer is Bearer.ACCOUNT else 0
    assert sum(world.cluster.credits.debts.values()) == world.book().owed == owed or world.book().adjusted == -owed
    assert not world.cluster.credits.bills


def test_an_elastic_gang_keeps_what_the_gpus_that_it_got_cost() -> None:
    """Reserved for 8, placed on 2: three quarters come back at once."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, gpus=8, min_gpus=2, max_runtime_s=3_600)
    assert world.book().reserved == 8 * CREDIT
    said = told(world.round())

    assert said == [("CreditRefunded", 6.0)]
    assert refunds(world)[-1].cause is RefundCause.TRIMMED
    assert (world.book().reserved, world.bill(job).reserved_micro) == (2 * CREDIT, 2 * CREDIT)
    assert told(world.round()) == []
    world.wait(1_800)
    assert over(world, job) == [("CreditCommitted", 1.0), ("CreditRefunded", 1.0)]


def test_a_run_on_the_cheaper_of_two_types_keeps_what_that_costs() -> None:
    """The dearest was reserved."""
    world = Purse({"n1": 2})
    world.prices(h100=CREDIT, b200=3 * CREDIT)
    job = world.paid("job", on={"n1": 2}, gpu_types=("b200", "h100"), max_runtime_s=3_600)
    assert world.book().reserved == 6 * CREDIT

    assert told(world.round()) == [("CreditRefunded", 4.0)]
    world.wait(3_600)
    assert over(world, job) == [("CreditCommitted", 2.0)]
    assert committed(world).nano_per_gpu_hour == CREDIT * 1_000


def test_a_run_that_costs_nothing_is_settled_all_the_same() -> None:
    """One commit of nothing, and no refund."""
    world = Purse({"n1": 2})
    world.prices(h100=0)
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(1_800)

    assert over(world, job) == [("CreditCommitted", 0.0)]
    assert (world.book().reservations, committed(world).gpu_us) == (0, GPU_HOUR_US)


def test_a_wait_that_costs_nothing_is_settled_all_the_same() -> None:
    """One refund of nothing."""
    world = Purse({"n1": 2})
    world.prices(h100=0)
    world.cancel(world.reserve(world.submit("job", 2)))

    assert told(world.round()) == [("CreditRefunded", 0.0)]
    assert world.book().reservations == 0


@pytest.mark.parametrize(("since", "charged"), [(ChargeFrom.STARTED, 0.0), (ChargeFrom.PLACED, 1.0)])
def test_a_run_that_never_starts_costs_what_the_policy_says(since: ChargeFrom, charged: float) -> None:
    """Nothing, where it counts from the start of its ranks."""
    world = Purse({"n1": 2}, charge_from=since)
    job = world.put(world.reserve(world.submit("job", 2, max_runtime_s=3_600)), n1=2)
    world.wait(1_800)
    world.cancel(job)
    world.round()
    world.end(job, reason=EndReason.NEVER_STARTED)
    world.release(job)
    world.round()

    assert (committed(world).outcome, committed(world).amount_micro) == (EndedAs.CANCELLED, charged * CREDIT)
    assert world.book().balance == (1_000 - charged) * CREDIT
    world.assert_sound()


def test_each_attempt_of_a_job_has_a_reservation_of_its_own() -> None:
    """The first was lost with its node, the second runs to its end."""
    world = Purse({"n1": 2, "n2": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.round()
    world.wait(90)
    world.round({N1: 90.0})
    world.accounts(Account(name=A))  # pays for nobody: rounds reserve nothing
    world.round({N1: 90.0})
    assert world.book().balance == 1_000 * CREDIT
    world.reserve(job)
    world.put(job, n2=2)
    world.start(job)
    world.wait(1_800)
    over(world, job)

    assert [entry.run_id for entry in world.entries() if isinstance(entry, CreditCommitted)] == ["job-1", "job-2"]
    assert world.book().balance == 999 * CREDIT


def test_a_round_settles_so_many_and_the_next_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order of their ids."""
    monkeypatch.setattr(settle, "SETTLED_MAX", 2)
    world = Purse({"n1": 8})
    jobs = [world.paid(f"job-{number}", on={"n1": 1}, max_runtime_s=3_600) for number in range(3)]
    world.wait(1_800)
    for job in jobs:
        world.end(job)
        world.release(job)
    said = [event.run_id for event in world.round() if isinstance(event, CreditCommitted)]
    assert said == ["job-0-1", "job-1-1"]
    said = [event.run_id for event in world.round() if isinstance(event, CreditCommitted)]
    assert said == ["job-2-1"]
    assert world.book().balance == 998_500_000


def test_a_round_that_has_said_much_begins_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one append."""
    monkeypatch.setattr(settle, "EVENTS_MAX", 1)
    world = Purse({"n1": 8})
    for number in range(3):
        world.cancel(world.reserve(world.submit(f"job-{number}", 1)))
    rounds = [names(world.round()).count("CreditRefunded") for _ in range(3)]

    assert rounds == [1, 1, 1]


def test_a_commit_without_its_refund_is_completed() -> None:
    """Rounds write both or none; where somebody else wrote the first, what is left is given back."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(1_800)
    world.end(job)
    world.release(job)
    decided = decide_all(world.cluster, world.tick())
    world.add(*(event for event in decided if not isinstance(event, CreditRefunded)))
    assert world.book().reservations == 1

    assert told(world.round()) == [("CreditRefunded", 1.0)]
    assert (world.book().reservations, world.cluster.unread) == (0, 0)


def test_what_is_waived_beyond_the_reservation_is_no_refund() -> None:
    """Two GPU-hours were reserved, three used, one and a half of them saved: half a credit comes back, and no more is there."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2}, max_runtime_s=3_600)
    world.wait(2_700)
    save(world, job)
    world.wait(2_700)
    world.accounts(Account(name=A))
    said = over(world, job, StopCause.PREEMPTED)

    assert said == [("CreditCommitted", 1.5), ("CreditRefunded", 0.5)]
    assert (refunds(world)[-1].cause, refunds(world)[-1].gpu_us) == (RefundCause.PREEMPTED, GPU_HOUR_US * 3 // 2)
    assert (world.book().reservations, world.book().balance) == (0, 998_500_000)
