"""Small logs with accounts, written by hand: a job that is paid for from its admission to the last refund, and what a test changes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from events.accounts import Account, AccountsSet
from events.base import HEAD, AccountId, AskId, Event, JobId, NodeEpoch, NodeId, Position, Recorded, RunId, position_of
from events.credit import (
    CreditCommitted,
    CreditEvent,
    CreditGranted,
    CreditRefunded,
    CreditReserved,
    EndedAs,
    Rate,
    RefundCause,
    UsageRecorded,
)
from events.head import RoundDecided
from events.log.memory import MemoryLog
from events.node import CheckpointSaved, EndReason, ShareEnded
from events.policy import ChargeFrom, PolicySet
from events.prices import GpuPrice, PriceList, PricesSet
from events.teller import GrantAsked
from tests.projections.cluster.audit.auditing import AT, TEAM, Book, admitted, lost, placed, requeued, succeeded

ALPHA: Final = AccountId("alpha")
CREDIT: Final = 1_000_000  # micro-credits
PER_GPU_S: Final = 1_000  # micro-credits: 3.6 credits an hour
NANO: Final = 3_600 * PER_GPU_S * 1_000
SECOND: Final = 1_000_000  # microseconds
GPUS: Final = 2  # of a job


class Paid(Book):
    """An account with 100 credits that pays for the team, at 3.6 credits an hour of any GPU, and a clock that goes on."""

    def __init__(self, *, granted: int = 100 * CREDIT, **policy: Any) -> None:
        self.now = AT
        self.entries: dict[AccountId, int] = {}
        super().__init__()
        self.policy(**policy)
        self.accounts(Account(name=ALPHA, queues=(TEAM,)))
        self.prices = self.price(PriceList(prices=(GpuPrice("", 3_600 * PER_GPU_S),)))
        if granted:
            self.grant(granted)

    def add(self, *events: Event) -> Position:
        """As any log, at the time of now; each record has an id."""
        for event in events:
            number = len(self.records) + 1
            self.records.append(Recorded(event, position_of(1, number), self.now, f"id-{number}"))
        return self.records[-1].position

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)

    def policy(self, **said: Any) -> None:
        """The policy is another; runs are charged from when they are placed."""
        self.add(PolicySet(at=self.now, **({"charge_from": ChargeFrom.PLACED} | said)))

    def accounts(self, *accounts: Account, closed_through: str = "") -> None:
        """The accounts are these."""
        self.add(AccountsSet(at=self.now, accounts=accounts, closed_through=closed_through))

    def price(self, *lists: PriceList) -> Position:
        """The prices are these."""
        return self.add(PricesSet(at=self.now, lists=lists))

    def entry(self, kind: type[CreditEvent], account: AccountId = ALPHA, **said: Any) -> Any:
        """The next entry of the account."""
        self.entries[account] = self.entries.get(account, 0) + 1
        fields: dict[str, Any] = {"at": self.now, "account": account, "entry": self.entries[account]}
        return kind(**(fields | said))

    def ask(self, kind: type[Any] = GrantAsked, *, name: str = "a1", **said: Any) -> AskId:
        """An operator asks something of the account."""
        self.add(kind(at=self.now, account=ALPHA, ask_id=AskId(name), key=name, request_hash="h", **said))
        return AskId(name)

    def grant(self, amount: int, name: str = "grant") -> None:
        """The account is given more."""
        ask_id = self.ask(name=name, amount_micro=amount)
        self.decide(self.entry(CreditGranted, ask_id=ask_id, amount_micro=amount))

    def reserved(self, job_id: JobId, *, gpus: int = 2, covers_s: int = 100, **said: Any) -> CreditReserved:
        """What is reserved for the first run of a job that declares so much time."""
        fields: dict[str, Any] = {
            "run_id": RunId(f"{job_id}-1"),
            "job_id": job_id,
            "team": TEAM,
            "amount_micro": gpus * covers_s * PER_GPU_S,
            "gpus": gpus,
            "covers_s": covers_s,
            "declared": True,
            "rates": (Rate("h100", NANO),),
            "step_s": 1,
            "charge_from": ChargeFrom.PLACED,
            "prices": self.prices,
        }
        event: CreditReserved = self.entry(CreditReserved, **(fields | said))
        return event

    def admit(self, name: str = "job", *, gpus: int = 2, runtime_s: int = 100, **spec: Any) -> JobId:
        """A job was asked for, and admitted with what is reserved for it."""
        job_id = self.submit(name, gpus, max_runtime_s=runtime_s, **spec)
        self.decide(admitted(job_id), self.reserved(job_id, gpus=gpus, covers_s=runtime_s))
        return job_id

    def place(self, job_id: JobId, slots: int = 0b0011, name: str = "n1") -> None:
        """The job has its GPUs."""
        self.decide(replace(placed(job_id, self.share(name, slots)), at=self.now))

    def of(self, job_id: JobId) -> dict[str, Any]:
        """What entries about the first run of a job say of it."""
        reserved = next(
            r.event for r in self.records if isinstance(r.event, CreditReserved) and r.event.job_id == job_id
        )
        assert isinstance(reserved, CreditReserved)
        return {"run_id": reserved.run_id, "job_id": job_id, "reservation": reserved.entry}

    def usage(
        self, job_id: JobId, began: datetime, ended: datetime, *, gpus: int = 2, number: int = 1, **said: Any
    ) -> Any:
        """What so many GPUs used in some time."""
        seconds = (ended - began) // timedelta(seconds=1)
        fields: dict[str, Any] = {
            "at": began,
            "usage_id": f"{job_id}-1-{number}",
            "run_id": RunId(f"{job_id}-1"),
            "job_id": job_id,
            "team": TEAM,
            "gpu_type": "h100",
            "gpu_us": gpus * seconds * SECOND,
            "amount_micro": gpus * seconds * PER_GPU_S,
            "nano_per_gpu_hour": NANO,
            "began": began,
            "ended": ended,
            "prices": self.prices,
        }
        return self.entry(UsageRecorded, **(fields | said))

    def committed(self, job_id: JobId, began: datetime, ended: datetime, *, gpus: int = 2, **said: Any) -> Any:
        """What so many GPUs used in some time is paid for."""
        seconds = (ended - began) // timedelta(seconds=1)
        fields: dict[str, Any] = {
            **self.of(job_id),
            "team": TEAM,
            "amount_micro": gpus * seconds * PER_GPU_S,
            "gpu_us": gpus * seconds * SECOND,
            "gpu_type": "h100",
            "nano_per_gpu_hour": NANO,
            "began": began,
            "ended": ended,
            "outcome": EndedAs.SUCCEEDED,
        }
        return self.entry(CreditCommitted, **(fields | said))

    def refunded(self, job_id: JobId, amount: int, cause: RefundCause = RefundCause.UNUSED, **said: Any) -> Any:
        """Some of what is reserved is given back."""
        return self.entry(CreditRefunded, **self.of(job_id), amount_micro=amount, cause=cause, **said)

    def end(self, job_id: JobId, name: str = "n1", slots: int = 0b0011) -> None:
        """The ranks of the job ended well, and the node gave its GPUs back."""
        ids: dict[str, Any] = {"node_id": NodeId(name), "node_epoch": NodeEpoch(self.nodes[name])}
        self.add(ShareEnded(at=self.now, **ids, run_id=RunId(f"{job_id}-1"), reason=EndReason.EXITED))
        self.released(f"{job_id}-1", name, slots)

    def settled(self, name: str = "job", *, used_s: int = 60) -> JobId:
        """A job of two GPUs ran for so long, of 100 seconds that were reserved, and all of it is settled."""
        job_id = self.admit(name)
        self.place(job_id)
        began = self.now
        self.wait(used_s)
        self.end(job_id)
        self.decide(succeeded(job_id))
        self.decide(
            self.usage(job_id, began, self.now),
            self.committed(job_id, began, self.now),
            self.refunded(job_id, 2 * (100 - used_s) * PER_GPU_S),
        )
        return job_id

    def change(
        self, kind: type[Event], how: Callable[[Any], Event] | None = None, *, last: bool = True, **said: Any
    ) -> None:
        """The last record of a kind says something else."""
        order = range(len(self.records) - 1, -1, -1) if last else range(len(self.records))
        index = next(index for index in order if isinstance(self.records[index].event, kind))
        event = self.records[index].event
        self.records[index] = replace(self.records[index], event=how(event) if how else replace(event, **said))


class Running(Paid):
    """A job of two GPUs runs since `began`, of 100 seconds that are reserved."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        self.job_id = self.admit()
        self.place(self.job_id)
        self.began = self.now

    def ended(self, after_s: float, outcome: Event | None = None) -> None:
        """It ended so long after."""
        self.now = self.began + timedelta(seconds=after_s)
        self.end(self.job_id)
        self.decide(outcome or succeeded(self.job_id))

    def used(self, seconds: int, *, began_s: int = 0, number: int = 1, **said: Any) -> UsageRecorded:
        """A record of so many seconds."""
        began = self.began + timedelta(seconds=began_s)
        ended = began + timedelta(seconds=seconds)
        event: UsageRecorded = self.usage(self.job_id, began, ended, number=number, **said)
        return event

    def paid(self, seconds: int, *, charged_s: int | None = None, **said: Any) -> CreditCommitted:
        """It ran so long, and pays for all of it or for less."""
        ended = self.began + timedelta(seconds=seconds)
        if charged_s is not None:
            charged = {"gpu_us": GPUS * charged_s * SECOND, "amount_micro": GPUS * charged_s * PER_GPU_S}
            said = charged | said
        event: CreditCommitted = self.committed(self.job_id, self.began, ended, **said)
        return event

    def back(self, seconds: int, cause: RefundCause = RefundCause.UNUSED, **said: Any) -> CreditRefunded:
        """So many seconds of both are given back."""
        event: CreditRefunded = self.refunded(self.job_id, GPUS * seconds * PER_GPU_S, cause, **said)
        return event

    def interrupted(self, after_s: int = 60, saved_s: int | None = None) -> str:
        """Its node was lost; before that it saved its progress. The id of the record that says it was lost."""
        ids: dict[str, Any] = {"node_id": "n1", "node_epoch": self.nodes["n1"], "run_id": RunId("job-1")}
        if saved_s is not None:
            self.now = self.began + timedelta(seconds=saved_s)
            self.add(CheckpointSaved(at=self.now, **ids, number=1))
        self.now = self.began + timedelta(seconds=after_s)
        self.decide(replace(lost(self, "n1"), silent_s=0.0))
        proof = self.records[-1].id
        self.decide(requeued(self.job_id))
        return proof

    def waived(self, seconds: int, proof: str, cause: RefundCause = RefundCause.INTERRUPTED) -> CreditRefunded:
        """What was lost is given back."""
        return self.back(seconds, cause, gpu_us=GPUS * seconds * SECOND, evidence=(proof,))


def plus(name: str, amount: int) -> Callable[[Any], Any]:
    """A change of one number by so much."""
    return lambda event: replace(event, **{name: getattr(event, name) + amount})


async def kept(records: list[Recorded]) -> MemoryLog:
    """A log that holds these records, each decision as one append, at the same positions and times."""
    now = records[0].at
    log = MemoryLog("main", lambda: now)
    head, waiting = Position(0), list(records)
    while waiting:
        first, now = waiting[0].event, waiting[0].at
        size = 1 + first.events if isinstance(first, RoundDecided) else 1
        batch = [record.event for record in waiting[:size]]
        del waiting[:size]
        if first.family is HEAD:
            head = Position(await log.append(batch, after=head) - size + 1)
        else:
            await log.record(batch)
    return log
