"""What accounts can pay in a round, counted along."""

from events.accounts import Account
from events.base import AccountId, JobId, TeamId
from events.credit import CreditReserved
from events.job import HoldCode, JobSpec
from projections.cluster.credit.quote import AMOUNT_MAX
from projections.cluster.job import Job, shape_of
from services.admission.till import UNBOUNDED, Till
from tests.purses import CREDIT, A, Purse


def till(world: Purse) -> Till:
    """As a round begins."""
    return Till(world.cluster, world.tick())


def a_job(gpus: int = 1, *, team: str = "t", **spec: object) -> Job:
    """One that waits: it costs a credit a GPU, for an hour."""
    asked = JobSpec(name="x", command=("true",), gpus=gpus, **{"max_runtime_s": 3_600, **spec})  # type: ignore[arg-type]
    return Job(job_id=JobId("x"), team=TeamId(team), spec=asked, shape=shape_of(asked), submitted=1)  # type: ignore[arg-type]


def test_what_is_taken_is_gone_and_entries_go_on() -> None:
    """Two jobs of one round do not spend the same credits, nor have they the same entry."""
    world = Purse({"n1": 8}, granted=3)
    first, second, third = (till_ := till(world)).reserve(a_job(2)), till_.reserve(a_job(2)), till_.reserve(a_job(1))
    assert isinstance(first, CreditReserved)
    assert isinstance(third, CreditReserved)
    assert (first.entry, first.amount_micro, first.run_id) == (2, 2 * CREDIT, "x-1")
    assert second is HoldCode.CREDITS
    assert (third.entry, till_.headroom(A)) == (3, 0)


def test_an_overdraft_is_spent_to_the_unit() -> None:
    """And no further; what costs nothing can be had even so."""
    world = Purse({"n1": 8}, granted=1)
    world.accounts(Account(name=A, queues=(TeamId("t"),), overdraft_micro=2 * CREDIT))
    desk = till(world)
    assert desk.covers(A, 3 * CREDIT)
    assert not desk.covers(A, 3 * CREDIT + 1)
    desk.enter(A, 5 * CREDIT)
    assert desk.headroom(A) == -2 * CREDIT
    assert desk.covers(A, 0)
    assert not desk.covers(A, 1)


def test_an_account_without_a_bound_pays_what_can_be_written_down() -> None:
    """Sums stay within 64 bits."""
    world = Purse({"n1": 8}, granted=0)
    world.accounts(Account(name=A, queues=(TeamId("t"),), overdraft_micro=None))
    assert till(world).headroom(A) == UNBOUNDED
    assert till(world).covers(A, UNBOUNDED)
    assert not till(world).covers(A, AMOUNT_MAX + 1)


def test_who_is_not_charged_reserves_nothing() -> None:
    """Of a team that no account lists; and where there are no accounts at all."""
    world = Purse({"n1": 8})
    assert till(world).reserve(a_job(team="other")) is None
    assert till(world).reserve(a_job(account="x")) is HoldCode.NO_ACCOUNT
    world.accounts()
    assert till(world).reserve(a_job()) is None
    assert not till(world).charges
    assert till(world).reserve(a_job(account=A)) is HoldCode.NO_ACCOUNT


def test_which_teams_are_charged() -> None:
    """Also one whose accounts are all closed: its jobs wait."""
    world = Purse({"n1": 8})
    world.accounts(Account(name=AccountId("b"), queues=(TeamId("t"),), closed=True))
    desk = till(world)
    assert desk.charges_team(TeamId("t"))
    assert not desk.charges_team(TeamId("other"))
    assert desk.reserve(a_job()) is HoldCode.NO_ACCOUNT
