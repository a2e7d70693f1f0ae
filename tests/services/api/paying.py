"""What the control plane says of credits, in tests that play it: each entry with the next number of its account."""

from datetime import UTC, datetime, timedelta
from typing import Any

from events.base import AccountId, AskId, Event, JobId, NodeEpoch, Position, RunId, SlotMask
from events.credit import (
    AdjustCause,
    CreditAdjusted,
    CreditCommitted,
    CreditGranted,
    CreditRefunded,
    CreditReserved,
    EndedAs,
    Rate,
    RefundCause,
    UsageRecorded,
)
from events.job import JobAdmitted, JobFailed, JobPlaced, NodeShare, RunStarted, StopCause
from events.policy import ChargeFrom
from tests.services.api.cell import CLOCK, NODE, TEAM, Cell

RED = AccountId("red")
MICRO = 1_000_000
HOUR_US = 3_600 * MICRO
ACCOUNTS: dict[str, Any] = {"accounts": [{"name": "red", "queues": ["default"], "overdraft": 10}]}
PRICES: dict[str, Any] = {"lists": [{"gpu_hour": {"h100": 2.5, "*": 1}, "classes": {"urgent": 2}, "step": "60s"}]}
BEGAN = datetime(2026, 3, 14, 15, tzinfo=UTC)


async def put(cell: Cell, path: str, document: Any, etag: str = "*") -> Position:
    """The document is set; where."""
    response = await cell.http.put(path, json=document, headers={"If-Match": etag, "Muster-Operator": "ada"})
    assert response.status_code == 200, response.text
    return Position(response.json()["position"])


async def priced(cell: Cell) -> Position:
    """The account of the default team, with prices, is set."""
    await put(cell, "/v1/credits/prices", PRICES)
    return await put(cell, "/v1/credits/document", ACCOUNTS)


class Book:
    """The entries of one account."""

    def __init__(self, cell: Cell, account: AccountId = RED) -> None:
        self.cell = cell
        self.account = account
        self.entry = 0

    def _next(self) -> dict[str, Any]:
        self.entry += 1
        return {"at": CLOCK.now(), "account": self.account, "entry": self.entry}

    async def grant(self, key: str = "k", amount: str = "100") -> Position:
        """A grant was asked for, and is done."""
        response = await self.cell.http.post(
            f"/v1/credits/accounts/{self.account}/grants", json={"credits": amount, "reason": "order 1", "key": key}
        )
        assert response.status_code == 202, response.text
        return await self.cell.decide(self.granted(response.json()["ask_id"], int(float(amount) * MICRO)))

    def granted(self, ask_id: str, amount: int) -> CreditGranted:
        """It is done."""
        return CreditGranted(**self._next(), ask_id=AskId(ask_id), amount_micro=amount, reason="order 1")

    def reserved(self, job_id: str, amount: int, attempt: int = 1) -> list[Event]:
        """The job is admitted."""
        run: dict[str, Any] = {"job_id": JobId(job_id), "team": TEAM, "run_id": RunId(f"{job_id}-{attempt}")}
        reserved = CreditReserved(
            **self._next(), **run, amount_micro=amount, gpus=2, covers_s=3_600, declared=True, step_s=60,
            rates=(Rate("h100", 2_500 * MICRO),), charge_from=ChargeFrom.STARTED, prices=Position(1),
        )  # fmt: skip
        return [JobAdmitted(at=CLOCK.now(), team=TEAM, job_id=JobId(job_id)), reserved]

    async def run(self, job_id: str, *, epoch: NodeEpoch) -> Position:
        """The job, which was admitted, runs."""
        at, run_id, share = CLOCK.now(), RunId(f"{job_id}-1"), NodeShare(NODE, epoch, SlotMask(3))
        who: dict[str, Any] = {"at": at, "team": TEAM, "job_id": JobId(job_id), "run_id": run_id}
        return await self.cell.decide(JobPlaced(**who, attempt=1, shares=(share,)), RunStarted(**who))

    def settled(self, job_id: str, reserved: int, charged_us: int, waived_us: int = 0) -> list[Event]:
        """Its first run was interrupted and is paid for: so much of its time is charged, so much is not."""
        run: dict[str, Any] = {"job_id": JobId(job_id), "run_id": RunId(f"{job_id}-1")}
        cost = charged_us * 5 // 2 // 3_600
        window: dict[str, Any] = {"began": BEGAN, "ended": BEGAN + timedelta(minutes=30)}
        price: dict[str, Any] = {"gpu_type": "h100", "nano_per_gpu_hour": 2_500 * MICRO, "team": TEAM}
        refunds = {RefundCause.INTERRUPTED: waived_us * 5 // 2 // 3_600}
        refunds[RefundCause.UNUSED] = reserved - cost - refunds[RefundCause.INTERRUPTED]
        usage = UsageRecorded(
            **self._next() | {"at": BEGAN}, **run, **price, **window, usage_id=f"{job_id}-1-1", gpu_us=charged_us,
            amount_micro=cost,
        )  # fmt: skip
        commit = CreditCommitted(
            **self._next(), **run, **price, **window, reservation=2, amount_micro=cost, gpu_us=charged_us,
            outcome=EndedAs.INTERRUPTED,
        )  # fmt: skip
        given = [
            CreditRefunded(
                **self._next(), **run, reservation=2, amount_micro=amount, cause=cause,
                gpu_us=waived_us if cause is RefundCause.INTERRUPTED else 0,
                evidence=("main-42",) if cause is RefundCause.INTERRUPTED else (),
            )
            for cause, amount in refunds.items()
            if amount
        ]  # fmt: skip
        return [usage, commit, *given]

    def given_back(self, of_entry: int, amount: int) -> CreditAdjusted:
        """An operator gave so much of a commit back."""
        return CreditAdjusted(**self._next(), amount_micro=amount, cause=AdjustCause.REFUND, of_entry=of_entry)

    async def lost(self, job_id: str, *settled: Event) -> Position:
        """Its run ended with its node, and is settled."""
        failed = JobFailed(
            at=CLOCK.now(), team=TEAM, job_id=JobId(job_id), run_id=RunId(f"{job_id}-1"), cause=StopCause.NODE_LOST,
            exit_code=-1, node_id=NODE,
        )  # fmt: skip
        return await self.cell.decide(failed, *settled)
