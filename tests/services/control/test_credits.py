"""Credits through a gate and leaders: however many submit at once, no more is reserved than there is."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from events.ask import Accepted, Grant, SetAccounts, SetPrices, Submit
from events.base import AccountId, TeamId
from events.credit import CreditReserved
from events.job import HoldCode, JobAdmitted
from projections.cluster.job import JobState
from services.gate.gate import open_gate
from tests.fixtures.waiting import until
from tests.services.control.cells import CLOCK, Cell, Hint

ACCOUNT = AccountId("vision-2026")
JOBS, PAYABLE = 100, 60
SPEC: dict[str, Any] = {"name": "train", "command": ["true"], "gpus": 1, "max_runtime": "1h"}


@pytest.mark.parametrize("changes", [False, True], ids=["one leader", "another in between"])
async def test_of_a_hundred_submitters_at_once_exactly_sixty_are_paid_for(cell: Cell, changes: bool) -> None:
    """The account has room for sixty: none more, none less, whoever leads, and however their asks fall into rounds.

    Each reservation stands right behind the admission that it is for. The auditor reads the log at the end.
    """
    async with open_gate(cell.open_log("gate"), CLOCK) as gate:
        await cell.join("n1", 8)
        accounts = {"accounts": [{"name": ACCOUNT, "queues": ["t"]}]}
        asked: list[SetAccounts | SetPrices] = [
            SetAccounts(document=accounts, replaces=None),
            SetPrices(document={"lists": [{"gpu_hour": {"*": 2}}]}, replaces=None),
        ]
        for ask in asked:
            assert isinstance(await gate.set_document(ask, "operator"), Accepted)
        grant = Grant(account=ACCOUNT, key="year", credits=str(2 * PAYABLE), reason="")
        assert isinstance(await gate.ask_account(grant, "operator"), Accepted)
        first, second = Hint(held=True), Hint()
        async with cell.plane("a", first), cell.plane("b", second):
            asks = [gate.submit(TeamId("t"), Submit(key=f"k{n}", spec=SPEC), f"user-{n}") for n in range(JOBS)]
            submitting = asyncio.gather(*asks)
            if changes:
                await until(lambda: bool(cell.kinds(JobAdmitted)))
                first.held, second.held = False, True
            assert all(isinstance(answer, Accepted) for answer in await submitting)
            await until(lambda: _told(cell) == {"paid": PAYABLE, "credits": JOBS - PAYABLE})
        book = cell.cluster.credits.books[ACCOUNT]
        assert (book.reserved, book.balance, book.reservations) == (2 * PAYABLE * 1_000_000, 0, PAYABLE)
    events = [record.event for record in cell.records]
    for number, event in enumerate(events):
        if isinstance(event, JobAdmitted):
            reserved = events[number + 1]
            assert isinstance(reserved, CreditReserved)
            assert reserved.job_id == event.job_id


def _told(cell: Cell) -> dict[str, int]:
    """How many jobs are paid for, and how many wait for credits."""
    jobs = cell.cluster.jobs.values()
    waits = (job.hold.value if job.hold is HoldCode.CREDITS else "new" for job in jobs if job.state is JobState.QUEUED)
    return dict(Counter(waits) + Counter("paid" for job in jobs if job.state is not JobState.QUEUED))
