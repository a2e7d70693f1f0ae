"""What the cluster knows of credits."""

from events.accounts import Account
from events.base import AccountId
from projections.cluster.credit.state import FORKED, Credits
from tests.purses import CREDIT, A, Purse


def test_headroom_is_the_balance_and_what_may_be_overdrawn() -> None:
    """No bound where the document has none; an account that it no longer lists may not be overdrawn."""
    world = Purse(granted=10)
    world.accounts(
        Account(name=A, overdraft_micro=5 * CREDIT),
        Account(name=AccountId("b"), overdraft_micro=None),
        Account(name=AccountId("c"), overdraft_micro=5 * CREDIT),
    )
    ours = world.cluster.credits

    assert ours.headroom(A) == 15 * CREDIT
    assert ours.headroom(AccountId("b")) is None
    assert ours.headroom(AccountId("c")) == 5 * CREDIT
    world.accounts(Account(name=AccountId("b")))
    assert world.cluster.credits.headroom(A) == 10 * CREDIT
    assert world.cluster.credits.headroom(AccountId("b")) == 0


def test_a_fork_changes_nothing_in_what_it_was_made_from() -> None:
    """All maps and lines are forked: one that is forgotten would be changed behind a reader's back."""
    ours = Credits()
    fork = ours.fork()
    lines = {"quoted", "covered", "hours", "owing"}
    maps = {name for name, value in vars(ours).items() if isinstance(value, dict)}

    assert maps == set(FORKED)
    assert {name for name in vars(ours) if getattr(fork, name) is not getattr(ours, name)} == maps | lines
