"""What the ledger does in a round, on clusters in which jobs are paid for."""

from tests.purses import CREDIT, Purse, told


def test_eight_gpus_for_ten_hours_of_the_twenty_four_that_were_reserved() -> None:
    """192 of 1,000 credits are reserved; after ten hours 80 are committed, 112 refunded, and 920 are left."""
    world = Purse({"n1": 8})
    job = world.paid("job", on={"n1": 8}, max_runtime_s=86_400)
    assert (world.book().reserved, world.book().balance) == (192 * CREDIT, 808 * CREDIT)
    world.round()
    world.wait(36_000)
    world.end(job)
    world.release(job)
    said = told(world.round())

    assert said[-2:] == [("CreditCommitted", 80.0), ("CreditRefunded", 112.0)]
    assert sum(amount for kind, amount in said if kind == "UsageRecorded") == 80.0
    assert (world.book().balance, world.book().reservations) == (920 * CREDIT, 0)
    assert not world.cluster.credits.bills
    assert not world.cluster.unread


def test_a_job_that_is_cancelled_before_it_starts_costs_nothing() -> None:
    """All that was set aside comes back in one refund."""
    world = Purse({"n1": 8})
    job = world.reserve(world.submit("job", 8, max_runtime_s=3_600))
    world.cancel(job)
    said = told(world.round())

    assert said == [("CreditRefunded", 8.0)]
    assert world.book().balance == 1_000 * CREDIT
