"""Entries of an account are numbered without a gap, whatever a round says of it."""

from events.credit import CreditGranted
from services.ledger.entries import Entries
from tests.purses import CREDIT, A, Purse


def test_entries_are_counted_along() -> None:
    """The cluster stays as it was."""
    world = Purse()
    entries = Entries(world.cluster, world.tick())

    assert [entries.next(A)["entry"] for _ in range(3)] == [2, 3, 4]
    assert world.book().entry == 1


def test_entries_of_a_round_follow_one_another() -> None:
    """Grants, commits and refunds of one account in one round."""
    world = Purse({"n1": 4})
    jobs = [world.paid(f"job-{number}", on={"n1": 2}, max_runtime_s=3_600) for number in range(2)]
    for job in jobs:
        world.end(job)
        world.release(job)
    world.grant(CREDIT)
    world.grant(CREDIT)
    world.round()

    assert [entry.entry for entry in world.entries()] == list(range(1, len(world.entries()) + 1))
    assert sum(isinstance(entry, CreditGranted) for entry in world.entries()) == 3
    world.assert_sound()
