"""What jobs cost: who pays, what they will reserve, what their runs were charged, and why."""

from datetime import UTC, datetime
from typing import Any

from events.log.memory import MemoryLog
from events.log.port import Unknown
from runtime.clock import ManualClock
from services.api.costs import PAUSE_S, Markets
from tests.services.api.cell import Cell
from tests.services.api.paying import HOUR_US, MICRO, Book, priced, put


def money(job: dict[str, Any]) -> tuple[str, str | None, str]:
    """What the API says of it."""
    return job["account"], job["reserves"], job["cost"]


async def test_a_job_that_waits_is_quoted(cell: Cell) -> None:
    """By the documents of now: its account, and what all its GPUs cost for as long as is covered."""
    free = await cell.submit()
    assert money(await cell.get(f"/v1/jobs/{free['job_id']}", min_position=free["position"])) == ("", None, "0")
    await cell.join()
    await priced(cell)
    for spec, costs in (
        ({"max_runtime": "2h", "gpu_types": ["h100"]}, ("red", "10", "0")),
        ({"max_runtime": "2h", "gpu_types": ["h100"], "priority": "urgent"}, ("red", "20", "0")),
        ({"max_runtime": "90s"}, ("red", "0.166667", "0")),  # of what the cluster has, in whole steps
        ({"team": "other"}, ("", None, "0")),  # nobody pays for it
        ({"max_runtime": "1h", "account": "blue"}, ("blue", None, "0")),  # which it may not charge
    ):
        job = await cell.submit(**spec)
        assert money(await cell.get(f"/v1/jobs/{job['job_id']}", min_position=job["position"])) == costs, spec
    listed = await cell.get("/v1/jobs")
    assert [money(job)[1] for job in listed["jobs"]] == [None, None, "0.166667", "20", "10", "5"]


async def test_a_job_has_the_bills_of_its_runs(cell: Cell) -> None:
    """What is reserved; then what was charged, what not, and by whose word."""
    await priced(cell)
    await cell.join()
    book, job = Book(cell), await cell.submit()
    path = f"/v1/jobs/{job['job_id']}"
    await book.grant()
    at = await cell.decide(*book.reserved(job["job_id"], 5 * MICRO))
    told = await cell.get(path, min_position=at)
    assert money(told) == ("red", "5", "0")
    (bill,) = told["bills"]
    assert (bill["state"], bill["reserved"], bill["charged"], bill["covers_s"]) == ("reserved", "5", "0", 3_600)

    await book.run(job["job_id"], epoch=cell.epoch)
    at = await book.lost(job["job_id"], *book.settled(job["job_id"], 5 * MICRO, HOUR_US // 2, HOUR_US))
    told = await cell.get(path, min_position=at)
    assert money(told) == ("red", None, "1.25")
    (bill,) = told["bills"]
    assert (bill["state"], bill["charged"], bill["refunded"], bill["outcome"]) == (
        "settled",
        "1.25",
        "3.75",
        "interrupted",
    )
    assert (bill["gpu_hours"], bill["waived_gpu_hours"], bill["per_gpu_hour"]) == ("0.5", "1", "2.5")
    assert bill["evidence"] == ["main-42"]


async def test_what_an_operator_gave_back_is_taken_off_what_a_job_costs(cell: Cell) -> None:
    """And told with the run that it was given back for; what the run was charged stays."""
    await priced(cell)
    await cell.join()
    book, job = Book(cell), await cell.submit()
    await book.grant()
    await cell.decide(*book.reserved(job["job_id"], 5 * MICRO))
    await book.run(job["job_id"], epoch=cell.epoch)
    await book.lost(job["job_id"], *book.settled(job["job_id"], 5 * MICRO, HOUR_US // 2, HOUR_US))
    at = await cell.decide(book.given_back(4, MICRO))
    told = await cell.get(f"/v1/jobs/{job['job_id']}", min_position=at)
    assert (money(told), told["given_back"]) == (("red", None, "0.25"), "1")
    assert (told["bills"][0]["charged"], told["bills"][0]["given_back"]) == ("1.25", "1")
    (listed,) = (await cell.get("/v1/jobs"))["jobs"]
    assert (listed["cost"], listed["given_back_micro"]) == ("0.25", MICRO)


async def test_a_market_without_prices_has_no_quote(cell: Cell) -> None:
    """The account is told all the same, where the job names it."""
    await put(cell, "/v1/credits/document", {"accounts": [{"name": "red", "queues": ["default"]}]})
    job = await cell.submit(account="red")
    assert money(await cell.get(f"/v1/jobs/{job['job_id']}", min_position=job["position"])) == ("red", None, "0")


class Away(MemoryLog):
    """A log that does not answer, and counts how often it was asked."""

    asked = 0

    async def last(self, subject: str) -> None:
        """See `Reader`."""
        self.asked += 1
        raise Unknown(subject)


async def test_lists_of_jobs_do_not_wait_for_a_log_that_is_away() -> None:
    """It is asked again after a pause, not by everyone who looks."""
    clock = ManualClock()
    log = Away("main", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    markets, nobody = Markets(log, clock), None
    for _ in range(3):
        assert await markets.now(nobody) is None  # type: ignore[arg-type]  # it is not asked
    assert log.asked == 1
    clock.advance(PAUSE_S)
    assert await markets.now(nobody) is None  # type: ignore[arg-type]
    assert log.asked == 2
