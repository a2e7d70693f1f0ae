"""Jobs of simulations, and what became of them."""

import pytest

from events.job import Priority
from services.simulate.work import classes_of
from tests.services.simulate.test_measure import life


def test_priority_numbers_are_mapped_in_their_order() -> None:
    """However far apart they are."""
    assert classes_of({7}) == {7: Priority.NORMAL}
    assert classes_of({50, 200, 100}) == {50: Priority.LOW, 100: Priority.NORMAL, 200: Priority.HIGH}
    assert classes_of(set()) == {}
    with pytest.raises(ValueError, match="5 priorities"):
        classes_of(set(range(5)))


def test_a_job_that_never_ran_has_no_wait_and_no_completion() -> None:
    """Also if it was cancelled while it waited."""
    assert life(1, 0).wait_s is None
    assert life(1, 0, None, 5).completion_s is None
    assert (life(1, 1, 3, 7).wait_s, life(1, 1, 3, 7).completion_s) == (2, 6)
