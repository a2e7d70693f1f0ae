"""Who pays for whom."""

from datetime import UTC, datetime

import pytest

from events.accounts import Account, AccountsSet
from events.base import AccountId, TeamId
from events.job import HoldCode
from projections.cluster.credit.payers import Payers

PATH = ("vision", "research", "all")  # from the job's own queue up


def an(name: str, *queues: str, closed: bool = False) -> Account:
    """An account of these queues."""
    return Account(name=AccountId(name), queues=tuple(TeamId(queue) for queue in queues), closed=closed)


def payers(*accounts: Account, closed_through: str = "", shut: tuple[str, ...] = ()) -> Payers:
    """What a document says; `shut`: which of them are closed for ever."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    document = AccountsSet(at=at, accounts=accounts, closed_through=closed_through)
    return Payers(document, closed=[AccountId(name) for name in shut])


def test_the_nearest_queue_that_an_account_lists_decides() -> None:
    """Of its accounts the first pays, or the one that the job names."""
    both = payers(an("top", "all"), an("old", "research"), an("new", "research"))

    assert both.payer(PATH, "") == an("old", "research")
    assert both.payer(PATH, "new") == an("new", "research")
    assert both.payer(PATH, "top") == an("top", "all")
    assert both.payer(("all",), "") == an("top", "all")


def test_a_queue_that_nobody_lists_is_not_charged() -> None:
    """Unless its job names an account that is not its own: it waits for one."""
    elsewhere = payers(an("a", "audio"))

    assert elsewhere.payer(PATH, "") is None
    assert elsewhere.payer(PATH, "a") is HoldCode.NO_ACCOUNT
    assert elsewhere.payer(PATH, "b") is HoldCode.NO_ACCOUNT


def test_a_closed_account_pays_for_nothing() -> None:
    """The next of the queue does, not one of a queue above; without one the job waits."""
    some = payers(an("top", "all"), an("old", "research", closed=True), an("new", "research"))

    assert some.payer(PATH, "") == an("new", "research")
    assert some.payer(PATH, "old") is HoldCode.NO_ACCOUNT
    assert payers(an("top", "all"), an("old", "research", closed=True)).payer(PATH, "") is HoldCode.NO_ACCOUNT


def test_an_account_that_is_closed_for_ever_is_so_whatever_the_document_says() -> None:
    """It is in the document as it was written, and closed for all that read it."""
    shut = payers(an("a", "all"), shut=("a",))

    assert shut.payer(PATH, "") is HoldCode.NO_ACCOUNT
    assert shut.closing == ["a"]
    assert shut.document is not None
    assert not shut.document.accounts[0].closed


def test_without_accounts_nobody_is_charged() -> None:
    """As before there were any."""
    assert Payers().payer(PATH, "") is None
    assert Payers().payer(PATH, "a") is HoldCode.NO_ACCOUNT
    assert not Payers()
    assert payers(an("a", "all"))


@pytest.mark.parametrize("month", ["2026-13", "2026", "soon", "9999-12"])
def test_a_month_that_is_none_is_not_closed(month: str) -> None:
    """The gate takes no such document; one that is written all the same closes nothing."""
    assert payers(closed_through=month).closed_through == ""
    assert payers(closed_through="2026-12").closed_through == "2026-12"
