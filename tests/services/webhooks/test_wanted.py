"""Filters: types with wildcards, teams and accounts."""

import pytest

from events.base import Event, Unreadable
from events.codec import EPOCH, TYPES, type_of
from services.webhooks.wanted import Wanted, fits, spelled_out
from tests.events.examples import EXAMPLES

OF_JOBS = {type_of(cls) for cls in TYPES if cls.family.name in {"job", "intake"}}


def test_all_types_below_a_name_are_meant_by_its_wildcard() -> None:
    """Also those that come with a later version, and none of another family."""
    assert {type_of(cls) for cls in TYPES if fits("musterbook.job.*", type_of(cls))} == OF_JOBS
    assert all(fits("*", type_of(cls)) for cls in TYPES)
    assert not fits("musterbook.job.placed.v1", "musterbook.job.placed.v10")


def test_types_may_be_given_short() -> None:
    """As for the event stream; each once, in the order given."""
    assert spelled_out(["job.placed", "musterbook.job.placed.v1", "credit.*", "*"]) == (
        "musterbook.job.placed.v1", "musterbook.credit.*", "*",
    )  # fmt: skip


@pytest.mark.parametrize(
    "pattern", ["", "job.plaaced", "musterbook.jobs.*", "job.*.v1", "job*", "*.v1", "job..placed", "a b", "x" * 500]
)
def test_a_pattern_that_no_type_fits_is_refused(pattern: str) -> None:
    """It would wait for ever, and nobody would know why."""
    with pytest.raises(ValueError, match="type"):
        spelled_out([pattern])


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type_of(type(event)))
def test_teams_choose_among_jobs_and_accounts_among_credits(event: Event) -> None:
    """An endpoint of one team learns nothing of another's, nor of what belongs to none."""
    name, of_credits = type_of(type(event)), event.family.name in {"credit", "teller"}
    team, account = getattr(event, "team", "red"), getattr(event, "account", "ops")
    assert Wanted(("*",)).wants(event)
    assert not Wanted(("musterbook.log.founded.v2",)).wants(event)
    assert Wanted(("*",), teams=(team,)).wants(event) == (name in OF_JOBS)
    assert Wanted(("*",), accounts=(account,)).wants(event) == of_credits
    assert Wanted(("*",), teams=(team,), accounts=(account,)).wants(event) == (name in OF_JOBS or of_credits)
    assert not Wanted(("*",), teams=("nobody",), accounts=("nothing",)).wants(event)


def test_what_cannot_be_read_is_not_sent() -> None:
    """It has no id that a receiver could know it by."""
    assert not Wanted(("*",)).wants(Unreadable(at=EPOCH, subject="head", named="", reason="of the future"))
