"""Who is admitted when credits are scarce, who waits for them, and that those who wait cost a round nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.accounts import Account
from events.base import AccountId, Event, JobId, NodeId, TeamId, run_id_of
from events.credit import CreditReserved
from events.job import (
    AdmissionWithdrawn,
    EarmarkDropped,
    GpusEarmarked,
    JobAdmitted,
    JobHeld,
    JobPlaced,
    NodeShare,
    Priority,
)
from events.node import EndReason
from events.queues import Bounds, Queue, QueueOrder, QueueStop
from projections.cluster.job import Job, JobState
from projections.cluster.quota.entitlement import Standing
from services.admission.decide import UNPAID_MAX, decide
from services.admission.till import Quoted, Till
from services.admission.unpaid import Unpaid
from tests.clusters import World
from tests.purses import CREDIT, A, Purse

T, U = TeamId("t"), TeamId("u")
HOUR_S = 3_600


def settle(world: Purse) -> list[Event]:
    """Rounds until nothing is said; and no law is broken."""
    said = world.rounds()
    World.assert_sound(world)
    assert not world.cluster.unread
    return said


def states(world: Purse) -> dict[str, str]:
    """Of each job that has no GPUs: `admitted`, or why it waits."""
    jobs = [job for job in world.cluster.jobs.values() if job.state is not JobState.PLACED]
    return {job.job_id: "admitted" if job.state is JobState.ADMITTED else job.hold.value for job in jobs}


def admitted(events: list[Event]) -> list[str]:
    """In order; each with its reservation right behind it."""
    found = [n for n, event in enumerate(events) if isinstance(event, JobAdmitted)]
    for number in found:
        event, reserved = events[number], events[number + 1]
        assert isinstance(event, JobAdmitted)
        assert isinstance(reserved, CreditReserved)
        assert (reserved.job_id, reserved.team) == (event.job_id, event.team)
    assert sum(isinstance(event, CreditReserved) for event in events) == len(found)
    return [event.job_id for event in events if isinstance(event, JobAdmitted)]


@pytest.mark.parametrize("one_by_one", [False, True], ids=["one round", "a round each"])
def test_of_a_hundred_jobs_sixty_are_admitted_where_sixty_can_be_paid_for(one_by_one: bool) -> None:
    """Exactly, and the first; whether they come together or one after the other."""
    world = Purse({"n1": 1}, granted=600)
    said: list[Event] = []
    for number in range(100):
        world.submit(f"j{number:02d}", 1, max_runtime_s=10 * HOUR_S)
        said += world.round() if one_by_one else []
    said += settle(world)
    assert admitted(said) == [f"j{number:02d}" for number in range(60)]
    assert (world.book().reserved, world.book().balance, world.book().reservations) == (600 * CREDIT, 0, 60)
    assert list(states(world).values()).count("credits") == 40
    assert world.round() == []


def test_what_is_given_back_admits_the_next() -> None:
    """In the round that gives it back."""
    world = Purse({"n1": 1}, granted=20)
    for name in ("first", "second", "third"):
        world.submit(name, 1, max_runtime_s=10 * HOUR_S)
    settle(world)
    assert states(world) == {"second": "admitted", "third": "credits"}
    world.cancel(JobId("second"))
    said = world.round() + world.round()
    assert admitted([event for event in said if not isinstance(event, JobHeld)]) == ["third"]
    settle(world)


def test_a_grant_admits_those_that_it_pays_for_in_order() -> None:
    """At once, by priority and age; the others still wait."""
    world = Purse({"n1": 8}, granted=0)
    for name, said in (
        ("old", {}),
        ("dear", {"max_runtime_s": 8 * HOUR_S}),
        ("new", {}),
        ("urgent", {"priority": Priority.URGENT}),
    ):
        world.submit(name, 1, **{"max_runtime_s": 2 * HOUR_S, **said})  # type: ignore[arg-type]
    settle(world)
    assert set(states(world).values()) == {"credits"}
    world.grant(5 * CREDIT)
    assert admitted(world.round()) == ["urgent", "old"]
    settle(world)
    assert states(world) == {"dear": "credits", "new": "credits"}


def test_a_cheap_job_behind_a_dear_one_is_admitted() -> None:
    """Of one line: they differ only in what they cost. And so is one that another account pays for."""
    world = Purse({"n1": 8}, granted=5)
    world.accounts(Account(name=A, queues=(T,)), Account(name=AccountId("b"), queues=(T,)))
    world.grant(100 * CREDIT, account=AccountId("b"))
    world.submit("dear", 1, max_runtime_s=6 * HOUR_S)
    world.submit("cheap", 1, max_runtime_s=5 * HOUR_S)
    world.submit("other", 1, max_runtime_s=6 * HOUR_S, account="b")
    assert admitted(world.round()) == ["cheap", "other"]
    assert settle(world) == []
    world.submit("free", 1, max_runtime_s=6 * HOUR_S, team="u")  # nobody charges team u
    assert [e.job_id for e in world.round() if isinstance(e, JobAdmitted)] == ["free"]
    assert states(world) == {"dear": "credits"}


def test_a_dear_job_is_found_behind_cheap_ones_of_its_line() -> None:
    """What can be paid for is looked up by what it costs, and tried in order."""
    world = Purse({"n1": 8}, granted=0)
    hours = {"a": 5, "b": 3, "c": 9, "d": 4}
    for name, number in hours.items():
        world.submit(name, 1, max_runtime_s=number * HOUR_S)
    settle(world)
    world.grant(8 * CREDIT)
    assert admitted(world.round()) == ["a", "b"]
    assert states(world) == {"c": "credits", "d": "credits"}


def test_in_a_strict_queue_those_behind_wait_too() -> None:
    """Until the first can be paid for."""
    world = Purse({"n1": 8}, granted=5)
    world.queues(Queue(name=T, order=QueueOrder.STRICT))
    for name, number in (("first", 4), ("dear", 6), ("cheap", 1)):
        world.submit(name, 1, max_runtime_s=number * HOUR_S)
    assert admitted(world.round()) == ["first"]
    settle(world)
    assert states(world) == {"dear": "credits", "cheap": "behind"}
    world.grant(5 * CREDIT)
    assert admitted(settle(world)) == ["dear"]
    world.grant(1 * CREDIT)
    assert admitted(settle(world)) == ["cheap"]


def test_a_job_without_an_account_or_a_price_holds_up_no_strict_queue() -> None:
    """It can never start as things are: only an operator, or its user, can change that."""
    world = Purse({"n1": 8})
    world.queues(Queue(name=T, order=QueueOrder.STRICT))
    world.join("n2", 8, gpu_type="b200")
    world.submit("nobodys", 1, account="x", gpu_types=("h100",))
    world.submit("priceless", 1)
    world.submit("job", 1, gpu_types=("h100",))
    assert admitted(world.round()) == ["job"]
    settle(world)
    assert states(world) == {"nobodys": "no_account", "priceless": "no_price"}
    world.prices(h100=CREDIT, b200=CREDIT)
    assert admitted(settle(world)) == ["priceless"]


def test_a_job_that_nobody_could_pay_for_is_told_what_it_waits_for_now() -> None:
    """No price becomes too dear a price; no account an account that is empty."""
    world = Purse({"n1": 8}, granted=0)
    world.prices(a100=CREDIT)
    world.submit("priceless", 1)
    world.submit("nobodys", 1, account="b")
    settle(world)
    assert states(world) == {"priceless": "no_price", "nobodys": "no_account"}
    world.wait(31)
    world.prices(h100=CREDIT)
    world.accounts(Account(name=A, queues=(T,)), Account(name=AccountId("b"), queues=(T,)))
    settle(world)
    assert states(world) == {"priceless": "credits", "nobodys": "credits"}
    world.accounts()  # and nobody is charged any more
    said = settle(world)
    assert [e.job_id for e in said if isinstance(e, JobAdmitted)] == ["priceless"]
    assert not world.cluster.credits.bills


def test_a_closed_account_pays_for_nothing_new() -> None:
    """What it has reserved stays so."""
    world = Purse({"n1": 1}, granted=100)
    world.submit("first", 1, max_runtime_s=HOUR_S)
    world.submit("second", 1, max_runtime_s=HOUR_S)
    settle(world)
    world.accounts(Account(name=A, queues=(T,), closed=True))
    world.submit("third", 1, max_runtime_s=HOUR_S)
    settle(world)
    assert states(world) == {"second": "admitted", "third": "no_account"}
    assert world.book().reservations == 2


def test_jobs_that_wait_for_credits_want_no_gpus() -> None:
    """So they take nothing of what others are entitled to; once they can be paid for they want them again, in that round."""
    world = Purse({"n1": 8}, granted=0)
    world.queues(Queue(name=T), Queue(name=U))
    world.policy(admitted_ahead=0)
    world.submit("poor", 4, max_runtime_s=HOUR_S)
    world.round()
    for number in range(8):
        world.submit(f"u{number}", 1, team="u")
    world.round()
    assert Standing(world.cluster, world.at).entitled(U, "h100") == 8
    assert [job.team for job in world.cluster.jobs.values() if job.state is JobState.PLACED] == ["u"] * 8
    world.grant(4 * CREDIT)
    said = [event for event in world.round() if isinstance(event, JobAdmitted)]
    assert [(event.job_id, event.borrowing) for event in said] == [("poor", False)]


def test_what_is_graver_is_said_of_jobs_that_wait_for_credits() -> None:
    """Though none of them is tried; and when that is over, they wait for credits again."""
    world = Purse({"n1": 8}, granted=0)
    world.submit("job", 1, max_runtime_s=HOUR_S)
    settle(world)
    for stop, code in ((QueueStop.PAUSE, "queue_paused"), (QueueStop.NONE, "credits")):
        world.wait(31)
        world.queues(Queue(name=T, stop=stop))
        settle(world)
        assert states(world) == {"job": code}


@pytest.mark.parametrize("order", list(QueueOrder), ids=lambda order: order.value)
def test_what_follows_from_wishes_is_not_said_of_jobs_that_wait_for_credits(order: QueueOrder) -> None:
    """Unless it wants GPUs, its floor is laid on a100 and it is over it; if it does, it is not, and waits for credits."""
    world = Purse({"n1": 8}, granted=0)
    world.join("m1", 6, gpu_type="a100")
    world.prices(h100=CREDIT, a100=CREDIT)
    world.queues(
        Queue(name=TeamId("org"), bounds=(Bounds(floor=4),)), Queue(name=T, parent="org", order=order), Queue(name=U)
    )
    world.submit("job", 1, gpu_types=("h100",), preemptible=False, max_runtime_s=HOUR_S)
    for _ in range(3):
        world.wait(31)
        settle(world)
        assert states(world) == {"job": "credits"}
    world.grant(CREDIT)
    settle(world)
    assert states(world) == {}


def test_held_jobs_of_a_poor_account_cost_a_round_nothing() -> None:
    """Held jobs of one account are looked at by their cheapest: one, however many there are and whatever they cost."""
    world = Purse({"n1": 8}, granted=1)
    for number in range(UNPAID_MAX):
        world.submit(f"j{number:04d}", 1, max_runtime_s=2 * HOUR_S + number)
    assert settle(world)
    asked: list[JobId] = []

    class Counting(Till):
        """Remembers who was asked about."""

        def quote(self, job: Job) -> Quoted:
            """As it is."""
            asked.append(job.job_id)
            return super().quote(job)

    unpaid = Unpaid(world.cluster, Counting(world.cluster, world.tick()))
    (line,) = world.cluster.queue.groups()
    assert len(asked) <= 2
    assert list(unpaid.in_turn(line)) == []
    assert decide(world.cluster, world.tick()) == []


def test_no_more_than_so_many_are_found_to_be_unpaid_in_one_round() -> None:
    """The rest is looked at in the next ones; nobody is forgotten."""
    world = Purse({"n1": 8}, granted=1)
    for number in range(UNPAID_MAX + 500):
        world.submit(f"j{number:04d}", 1, max_runtime_s=2 * HOUR_S)
    world.submit("last", 1, max_runtime_s=HOUR_S)
    first = world.round()
    assert admitted(first) == []
    assert sum(isinstance(event, JobHeld) for event in first) == 500
    assert admitted(settle(world)) == ["last"]
    assert set(states(world).values()) == {"credits"}


def test_what_was_reserved_and_not_used_comes_back_before_it_is_reserved_again() -> None:
    """A run has one reservation: a job that was taken back waits for the ledger."""
    world = Purse({"n1": 1}, granted=100)
    world.submit("first", 1, max_runtime_s=HOUR_S)
    job = world.submit("job", 1, max_runtime_s=HOUR_S)
    world.rounds()
    world.add(AdmissionWithdrawn(at=world.at, team=T, job_id=job))
    assert decide(world.cluster, world.tick()) == []
    said = world.round()
    assert [type(event).__name__ for event in said[:3]] == ["CreditRefunded", "JobAdmitted", "CreditReserved"]
    world.rounds()
    world.assert_sound()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=12), st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_jobs_are_admitted_in_order_as_far_as_each_can_be_paid_for(hours: list[int], grants: list[int]) -> None:
    """Whenever credits come, as if somebody went through the line with the purse in hand."""
    world = Purse({"n1": 1}, granted=0)
    waiting = [
        (world.submit(f"j{number:02d}", 1, max_runtime_s=cost * HOUR_S), cost) for number, cost in enumerate(hours)
    ]
    left, expected = 0, set[str]()
    for grant in grants:
        world.grant(grant * CREDIT)
        settle(world)
        left += grant
        for job, cost in waiting:
            if cost <= left:
                left -= cost
                expected.add(job)
        waiting = [(job, cost) for job, cost in waiting if job not in expected]
        assert {job.job_id for job in world.cluster.jobs.values() if job.state is not JobState.QUEUED} == expected
        assert world.book().balance == left * CREDIT


def test_a_job_that_was_moved_and_cannot_be_paid_for_lets_its_place_go() -> None:
    """What was set aside for it is anyone's again, in the round in which it was to be admitted."""
    world = Purse({"n1": 8, "n2": 8}, granted=4)
    moved = world.paid("moved", on={"n1": 4}, max_runtime_s=HOUR_S)
    gang = world.submit("gang", 8, team="free")
    ids = {"at": world.at, "job_id": moved, "team": T}
    here, there = (
        NodeShare(NodeId(name), world.cluster.nodes[NodeId(name)].epoch, mask)
        for name, mask in (("n1", 255), ("n2", 15))
    )  # type: ignore[arg-type]
    victims = (run_id_of(moved, 1),)
    world.add(
        JobAdmitted(at=world.at, job_id=gang, team=TeamId("free")),
        GpusEarmarked(at=world.at, job_id=gang, team=TeamId("free"), shares=(here,), victims=victims, moved=True),
        GpusEarmarked(**ids, shares=(there,)),
    )
    world.round()
    world.end(moved, reason=EndReason.STOPPED)
    world.release(moved)
    world.adjust(-1 * CREDIT)  # comes before what is new
    said = world.round()
    assert [
        (type(e).__name__, getattr(e, "job_id", ""))
        for e in said
        if isinstance(e, JobHeld | EarmarkDropped | JobPlaced)
    ] == [
        ("JobHeld", "moved"),
        ("JobPlaced", "gang"),
        ("EarmarkDropped", "moved"),
    ]
    assert states(world) == {"moved": "credits"}
    assert not world.cluster.earmarks
    world.assert_sound()
