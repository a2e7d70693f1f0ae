"""How credits change the cluster; and that what contradicts them changes nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from events.accounts import Account
from events.base import AccountId, AskId, Event, JobId, Position, RunId, TeamId
from events.credit import (
    AccountClosed,
    AdjustCause,
    AskRefused,
    CreditAdjusted,
    CreditCommitted,
    CreditGranted,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    CreditsRunningOut,
    EndedAs,
    RefundCause,
    UsageRecorded,
    UsageUncovered,
)
from events.period import PeriodClosed
from events.policy import Bearer
from projections.cluster.credit.state import Entry
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster
from services.control.round import decide_all
from tests.clusters import names
from tests.purses import CREDIT, A, Purse

B = AccountId("b")


def a_world() -> Purse:
    """One run that goes on, one that is over and whose account owes what it used beyond its reservation, one job that waits."""
    world = Purse({"n1": 8}, granted=20, uncovered=Bearer.ACCOUNT)
    world.accounts(Account(name=A, queues=(TeamId("t"),)), Account(name=B))
    world.paid("goes-on", on={"n1": 2}, max_runtime_s=36_000)
    over = world.paid("over", on={"n1": 2}, max_runtime_s=600)
    world.reserve(world.submit("waits", 8, max_runtime_s=600))
    world.wait(900)
    world.end(over)
    world.release(over)
    world.round()
    world.grant(CREDIT, key="g")
    world.adjust(CREDIT, key="r", refunds=1, refunds_entry=1, refunds_micro=CREDIT // 2)
    world.adjust(1, key="s", refunds=1, refunds_entry=1, refunds_micro=CREDIT)
    return world


def next_round() -> tuple[Purse, list[Event]]:
    """A world, and what the next round would write: a settlement with all that there can be, and answers."""
    world = Purse({"n1": 8}, uncovered=Bearer.ACCOUNT)
    world.accounts(Account(name=A, queues=(TeamId("t"),)), Account(name=B))
    world.paid("goes-on", on={"n1": 2}, max_runtime_s=36_000)
    over = world.paid("over", on={"n1": 2}, max_runtime_s=600)
    early = world.paid("early", on={"n1": 2}, max_runtime_s=36_000)
    world.cancel(world.reserve(world.submit("withdrawn", 2, max_runtime_s=600)))
    world.paid("smaller", on={"n1": 1}, gpus=2, min_gpus=1, max_runtime_s=600)
    world.wait(900)
    for job in (over, early):
        world.end(job)
        world.release(job)
    world.grant(CREDIT)
    world.adjust(CREDIT)
    world.adjust(2 * CREDIT, refunds=1, refunds_entry=1, refunds_micro=CREDIT)
    return world, decide_all(world.cluster, world.tick())


def state(cluster: Cluster) -> bytes:
    """All of the cluster but where it stands in the log, as bytes."""
    other = cluster.fork()
    other.position, other.at, other.unread, other.head = Position(0), None, Position(0), Position(0)
    return dump(other)


WRONG: tuple[dict[str, Any], ...] = (
    {"entry": 1},
    {"entry": 99},
    {"account": B},
    {"account": AccountId("unknown")},
    {"run_id": RunId("goes-on-1")},
    {"run_id": RunId("unknown-1")},
    {"job_id": JobId("goes-on")},
    {"reservation": 1},
    {"ask_id": AskId("unknown")},
    {"amount_micro": 1 << 60},
    {"of_entry": 99},
    {"usage_id": "over-1-7"},
)


def test_a_round_in_the_log_is_as_it_was_decided() -> None:
    """What these tests make wrong is right before."""
    world, decided = next_round()
    kinds = {type(event) for event in decided}
    world.add(*decided)

    assert not world.cluster.unread
    assert {CreditGranted, CreditAdjusted, AskRefused, UsageRecorded, UsageUncovered, CreditCommitted} <= kinds
    assert {CreditRefunded} <= kinds
    world.assert_sound()


@pytest.mark.parametrize("wrong", WRONG, ids=[f"{key}={value}" for said in WRONG for key, value in said.items()])
def test_an_entry_that_contradicts_changes_nothing(wrong: dict[str, Any]) -> None:
    """Each of a round in turn, with this in place of what it says; those before it hold."""
    world, decided = next_round()
    entries = [n for n, event in enumerate(decided) if all(hasattr(event, name) for name in wrong)]
    amounts = (CreditGranted, CreditAdjusted, CreditCommitted, CreditRefunded)
    tried = 0
    for number in entries:
        event = decided[number]
        bad = replace(event, **wrong)
        if bad == event or ("amount_micro" in wrong and not isinstance(event, amounts)):
            continue  # usage may be anything: it moves no balance
        if "ask_id" in wrong and not getattr(event, "ask_id", ""):
            continue
        if "of_entry" in wrong and getattr(event, "cause", None) is not AdjustCause.REFUND:
            continue
        world, decided = next_round()
        world.add(*decided[:number])
        before = state(world.cluster)
        world.add(bad)
        assert world.cluster.unread == world.records[-1].position, bad
        assert state(world.cluster) == before, bad
        assert load(dump(world.cluster), log_id="test") is not None
        tried += 1
    assert tried or "of_entry" in wrong


def test_an_entry_that_is_written_twice_changes_nothing() -> None:
    """Its number is taken; with the next one, what it is about has passed."""
    world, decided = next_round()
    world.add(*decided)
    for event in decided:
        if isinstance(event, CreditGranted | CreditAdjusted | CreditCommitted | CreditRefunded | AskRefused):
            for entry in (event.entry, world.book().entry + 1):
                before = state(world.cluster)
                world.cluster.unread = Position(0)
                world.add(replace(event, entry=entry))
                assert world.cluster.unread, event
                assert state(world.cluster) == before


def test_nothing_of_a_run_that_was_placed_comes_back_before_it_is_paid_for() -> None:
    """Else it would be settled without a commit."""
    world, decided = next_round()
    at = next(n for n, e in enumerate(decided) if isinstance(e, CreditCommitted) and e.run_id == "early-1")
    refund = next(e for e in decided[at:] if isinstance(e, CreditRefunded))
    world.add(*decided[:at])
    before = state(world.cluster)
    world.add(replace(refund, entry=world.book().entry + 1))

    assert refund.run_id == "early-1"
    assert world.cluster.unread
    assert state(world.cluster) == before


@pytest.mark.parametrize("again", ["commit", "use", "uncovered"])
def test_nothing_is_said_of_what_is_paid_for_but_that_the_rest_comes_back(again: str) -> None:
    """Between its commit and its refund, which stand in one append."""
    world, decided = next_round()
    at = next(n for n, e in enumerate(decided) if isinstance(e, CreditCommitted) and e.run_id == "early-1")
    world.add(*decided[: at + 1])
    commit, used = decided[at], next(e for e in reversed(decided[:at]) if isinstance(e, UsageRecorded))
    uncovered = next(e for e in decided if isinstance(e, UsageUncovered))
    assert isinstance(commit, CreditCommitted)
    assert used.run_id == commit.run_id
    entry, of = world.book().entry + 1, {"run_id": commit.run_id, "job_id": commit.job_id}
    before = state(world.cluster)
    match again:
        case "commit":
            world.add(replace(commit, entry=entry, amount_micro=0))
        case "use":
            number = world.bill(commit.job_id).records + 1
            world.add(replace(used, entry=entry, usage_id=f"{commit.run_id}-{number}"))
        case _:
            world.add(replace(uncovered, entry=entry, reservation=commit.reservation, **of))

    assert world.cluster.unread
    assert state(world.cluster) == before


def made_up(world: Purse) -> dict[str, Event]:
    """Entries that somebody made up about what is there."""
    ids: dict[str, Any] = {"at": world.at, "account": A, "entry": world.book().entry + 1}
    bill, waits = world.bill(JobId("goes-on")), world.bill(JobId("waits"))
    of: dict[str, Any] = {"reservation": bill.reservation, "run_id": bill.run_id, "job_id": bill.job_id}
    of_waits: dict[str, Any] = {"reservation": waits.reservation, "run_id": waits.run_id, "job_id": waits.job_id}
    commit = CreditCommitted(
        **ids,
        **of,
        team=TeamId("t"),
        amount_micro=1,
        gpu_us=1,
        gpu_type="h100",
        nano_per_gpu_hour=1,
        began=world.at,
        ended=world.at,
        outcome=EndedAs.SUCCEEDED,
    )
    reserved = next(entry for entry in world.entries() if isinstance(entry, CreditReserved))
    use: dict[str, Any] = {"gpu_type": "h100", "nano_per_gpu_hour": 1, "began": world.at, "ended": world.at}
    used = UsageRecorded(
        **ids,
        usage_id="goes-on-1-1",
        run_id=bill.run_id,
        job_id=bill.job_id,
        team=TeamId("t"),
        gpu_us=-1,
        amount_micro=0,
        **use,
    )
    return {
        "commit of a run that goes on": commit,
        "commit of a wait": replace(commit, **of_waits),
        "refund of what a run may still use": CreditRefunded(**ids, **of, amount_micro=1, cause=RefundCause.TRIMMED),
        "refund of what a wait may still use": CreditRefunded(
            **ids, **of_waits, amount_micro=1, cause=RefundCause.TRIMMED
        ),
        "uncovered of a run that goes on": UsageUncovered(**ids, **of, amount_micro=1, bearer=Bearer.ACCOUNT),
        "reserved for a job that runs": replace(reserved, entry=ids["entry"]),
        "reserved twice": replace(reserved, entry=ids["entry"], job_id=waits.job_id, run_id=waits.run_id),
        "reserved for a job that nobody knows": replace(reserved, entry=ids["entry"], job_id=JobId("x")),
        "reserved for another attempt": replace(
            reserved, entry=ids["entry"], job_id=waits.job_id, run_id=RunId("waits-7")
        ),
        "use that is less than none": used,
        "use with a number that was not next": replace(used, gpu_us=1, usage_id="goes-on-1-2"),
        "closed with reservations": AccountClosed(**ids),
        "debt that nobody has": CreditAdjusted(**ids, amount_micro=-1, cause=AdjustCause.UNCOVERED, of_entry=1),
        "debt paid upward": CreditAdjusted(
            **ids, amount_micro=1, cause=AdjustCause.UNCOVERED, of_entry=next(iter(world.cluster.credits.debts)).entry
        ),
        "debt paid beyond it": CreditAdjusted(
            **ids,
            amount_micro=-(1 << 60),
            cause=AdjustCause.UNCOVERED,
            of_entry=next(iter(world.cluster.credits.debts)).entry,
        ),
        "renewed under another reservation": CreditRenewed(
            **ids, **{**of, "reservation": waits.reservation}, amount_micro=1, covers_s=1
        ),
        "running out of a run that nobody knows": CreditsRunningOut(
            **ids, **{**of, "run_id": RunId("x-1")}, until=world.at
        ),
        "answer in another account's name": CreditGranted(
            at=world.at, account=B, entry=1, ask_id=AskId("ag"), amount_micro=CREDIT
        ),
        "another amount than was asked for": CreditGranted(**ids, ask_id=AskId("ag"), amount_micro=1),
        "grant in place of a refund": CreditGranted(**ids, ask_id=AskId("ar"), amount_micro=CREDIT),
        "correction in place of a grant": CreditAdjusted(
            **ids, ask_id=AskId("ag"), amount_micro=CREDIT, cause=AdjustCause.OPERATOR
        ),
        "refund beyond the commit": CreditAdjusted(
            **ids, ask_id=AskId("ar"), amount_micro=CREDIT, cause=AdjustCause.REFUND, of_entry=1
        ),
        "refund of another commit": CreditAdjusted(
            **ids, ask_id=AskId("as"), amount_micro=1, cause=AdjustCause.REFUND, of_entry=2
        ),
        "no month": PeriodClosed(at=world.at, month="2026-13"),
    }


@pytest.mark.parametrize("name", list(made_up(a_world())))
def test_what_is_made_up_changes_nothing(name: str) -> None:
    """From there on nothing is decided, and following goes on."""
    world = a_world()
    event = made_up(world)[name]
    before = state(world.cluster)
    world.add(event)

    assert world.cluster.unread == world.records[-1].position
    assert state(world.cluster) == before


@pytest.mark.parametrize("why", ["owed", "reservations"])
def test_an_account_is_not_closed_while_something_is_open(why: str) -> None:
    """A debt, or a reservation, be it of nothing."""
    world = Purse(granted=0)
    world.cluster.credits.books[A] = replace(world.book(), **{why: 1})
    world.add(AccountClosed(at=world.at, account=A, entry=1))

    assert world.cluster.unread
    assert not world.book().closed


def test_what_is_asked_while_the_closing_of_an_account_is_decided_comes_too_late() -> None:
    """A gate fences no round: it is as what is asked afterwards, of this account and of no other, and deciding goes on."""
    world = Purse(granted=0)
    world.accounts(Account(name=A, queues=(TeamId("t"),), closed=True), Account(name=B))
    decided = decide_all(world.cluster, world.tick())
    world.grant(CREDIT)
    world.grant(CREDIT, account=B)
    world.add(*decided)

    assert world.book().closed
    assert {ask.account for ask in world.cluster.credits.asked.values()} == {B}
    assert names(world.rounds()) == ["CreditGranted"]
    assert (world.book().balance, world.book(B).balance) == (0, CREDIT)
    world.assert_sound()


def test_months_are_closed_in_order() -> None:
    """One after the other, once."""
    world = Purse()
    for month in ("2026-11", "2026-12", "2027-01"):
        world.add(PeriodClosed(at=world.at, month=month))
    assert not world.cluster.unread
    for month in ("2027-01", "2027-03", "2026-12"):
        world.cluster.unread = Position(0)
        world.add(PeriodClosed(at=world.at, month=month))
        assert world.cluster.unread
    assert world.cluster.credits.month_closed == "2027-01"


def test_a_debt_is_paid_in_parts() -> None:
    """What is left is owed."""
    world = a_world()
    ((of, owed),) = world.cluster.credits.debts.items()
    assert of == Entry(A, of.entry)
    assert owed == world.book().owed == 166_667  # a sixth of a credit, as all that it used is rounded
    for amount in (-1, 1 - owed):
        world.add(
            CreditAdjusted(
                at=world.at,
                account=A,
                entry=world.book().entry + 1,
                amount_micro=amount,
                cause=AdjustCause.UNCOVERED,
                of_entry=of.entry,
            )
        )
    assert not world.cluster.unread
    assert not world.cluster.credits.debts
    assert (world.book().owed, world.book().adjusted) == (0, -owed)


def test_what_runs_out_is_renewed_and_runs_out_no_more() -> None:
    """It covers so much longer."""
    world = Purse({"n1": 2})
    job = world.paid("job", on={"n1": 2})
    ids: dict[str, Any] = {"at": world.at, "account": A, "reservation": world.bill(job).reservation}
    run: dict[str, Any] = {"run_id": RunId("job-1"), "job_id": job}
    world.add(CreditsRunningOut(**ids, **run, entry=world.book().entry + 1, until=world.at))
    assert world.bill(job).running_out == world.at
    world.add(CreditRenewed(**ids, **run, entry=world.book().entry + 1, amount_micro=2 * CREDIT, covers_s=3_600))

    assert world.bill(job).running_out is None
    assert (world.bill(job).covers_s, world.bill(job).reserved_micro) == (7_200, 4 * CREDIT)
    assert world.book().reserved == 4 * CREDIT


def test_an_account_that_is_left_out_keeps_its_balance() -> None:
    """And pays for nothing new."""
    world = Purse()
    world.accounts(Account(name=B))

    assert world.book().balance == 1_000 * CREDIT
    assert A not in world.cluster.credits.payers.by_name
