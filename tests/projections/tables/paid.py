"""Logs of credits that tests make up: accounts that grants, runs and operators move, by the rules of the ledger."""

from datetime import datetime, timedelta
from random import Random
from typing import Any

from events.accounts import Account, AccountsSet
from events.base import AccountId, AskId, Event, JobId, Position, RunId, TeamId, run_id_of
from events.credit import (
    AccountClosed,
    AdjustCause,
    AskRefused,
    CreditAdjusted,
    CreditCommitted,
    CreditGranted,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    CreditsRunningOut,
    EndedAs,
    Rate,
    RefundCause,
    UsageRecorded,
    UsageUncovered,
)
from events.period import PeriodClosed
from events.policy import Bearer, ChargeFrom
from events.teller import AdjustmentAsked, GrantAsked
from tests.histories import BEGIN

RED, BLUE = AccountId("red"), AccountId("blue")
TEAM = TeamId("t")
JOB = JobId("j1")
RUN = run_id_of(JOB, 1)


def accounts(*listed: Account, at: datetime = BEGIN, closed_through: str = "") -> AccountsSet:
    """The document of these accounts."""
    return AccountsSet(at=at, accounts=listed, closed_through=closed_through)


def asked(key: str, amount: int, account: AccountId = RED, by: str = "ops") -> GrantAsked | AdjustmentAsked:
    """An operator asks for a grant; or, of less than nothing, for an adjustment."""
    ask: dict[str, Any] = {"at": BEGIN, "by": by, "account": account, "ask_id": AskId(f"a{key}"), "key": key}
    kind = GrantAsked if amount >= 0 else AdjustmentAsked
    return kind(**ask, request_hash="h", amount_micro=amount, reason=f"why {key}")


def granted(entry: int, key: str, amount: int, account: AccountId = RED) -> CreditGranted:
    """What was asked under the key is done."""
    return CreditGranted(at=BEGIN, account=account, entry=entry, ask_id=AskId(f"a{key}"), amount_micro=amount)


class Purse:
    """Writes the entries of one account about one run, each with the next number."""

    def __init__(self, account: AccountId = RED, *, entry: int = 0, run_id: RunId = RUN, at: datetime = BEGIN) -> None:
        self.account, self.entry, self.at = account, entry, at
        self.run_id, self.job_id = run_id, JobId(run_id.rpartition("-")[0])
        self.reservation = self.records = 0

    def next(self) -> dict[str, Any]:
        """What every entry says."""
        self.entry += 1
        return {"at": self.at, "account": self.account, "entry": self.entry}

    def _run(self) -> dict[str, Any]:
        return {**self.next(), "reservation": self.reservation, "run_id": self.run_id, "job_id": self.job_id}

    def reserved(self, amount: int, *, covers_s: int = 3600, declared: bool = True) -> CreditReserved:
        """Set aside for the run."""
        self.reservation = self.entry + 1
        return CreditReserved(
            **self.next(),
            run_id=self.run_id,
            job_id=self.job_id,
            team=TEAM,
            amount_micro=amount,
            gpus=8,
            covers_s=covers_s,
            declared=declared,
            rates=(Rate("a100", 1_000), Rate("h100", 2_500)),
            step_s=1,
            charge_from=ChargeFrom.PLACED,
            prices=Position(7),
        )

    def renewed(self, amount: int) -> CreditRenewed:
        """More is, for an hour."""
        return CreditRenewed(**self._run(), amount_micro=amount, covers_s=3600)

    def running_out(self) -> CreditsRunningOut:
        """No more can be."""
        return CreditsRunningOut(**self._run(), until=self.at + timedelta(hours=1))

    def used(self, amount: int, gpu_us: int, *, corrects: bool = False) -> UsageRecorded:
        """What an hour used, or less."""
        self.records += 1
        entry = self._run()
        del entry["reservation"]
        return UsageRecorded(
            **entry,
            usage_id=f"{self.run_id}-{self.records}",
            team=TEAM,
            gpu_type="h100",
            gpu_us=gpu_us,
            amount_micro=amount,
            nano_per_gpu_hour=2_500,
            began=self.at,
            ended=self.at + timedelta(hours=1),
            corrects=corrects,
            cause=RefundCause.INTERRUPTED if corrects else "",
            prices=Position(7),
        )

    def committed(self, amount: int, gpu_us: int, *, outcome: EndedAs = EndedAs.SUCCEEDED) -> CreditCommitted:
        """The run is paid for."""
        return CreditCommitted(
            **self._run(),
            team=TEAM,
            amount_micro=amount,
            gpu_us=gpu_us,
            gpu_type="h100",
            nano_per_gpu_hour=2_500,
            began=self.at,
            ended=self.at,
            outcome=outcome,
        )

    def refunded(self, amount: int, cause: RefundCause = RefundCause.UNUSED, **also: Any) -> CreditRefunded:
        """What is left is available again."""
        return CreditRefunded(**self._run(), amount_micro=amount, cause=cause, **also)

    def uncovered(self, amount: int, bearer: Bearer = Bearer.ACCOUNT) -> UsageUncovered:
        """It used more than was set aside."""
        return UsageUncovered(**self._run(), amount_micro=amount, bearer=bearer)

    def paid(self, of_entry: int, amount: int) -> CreditAdjusted:
        """What was uncovered is taken from the account."""
        return CreditAdjusted(**self.next(), amount_micro=-amount, cause=AdjustCause.UNCOVERED, of_entry=of_entry)


class Paying:
    """A log about credits that grows by random steps. Its own books say what each account has."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.events: list[Event] = []
        self.purses = {name: Purse(name) for name in (RED, BLUE)}
        self.balances = dict.fromkeys(self.purses, 0)
        self.reserved: dict[RunId, tuple[AccountId, int, int]] = {}  # account, the entry, and what is set aside
        self.keys = self.runs = self.months = 0
        self.say_accounts()

    def step(self) -> None:
        """One thing happens."""
        self.random.choice((self.say_accounts, self.grant, self.grant, *[self.reserve, self.go_on, self.settle] * 2))()
        if self.random.random() < 0.05:
            self.months += 1
            self.events.append(PeriodClosed(at=BEGIN, month=f"2026-{self.months:02d}"))

    def say_accounts(self) -> None:
        """The document names other accounts, or says other things of them."""
        names = [name for name in (RED, BLUE, AccountId("green")) if self.random.random() < 0.8]
        overdraft = self.random.choice((0, 500, None))
        of = [Account(name=name, queues=(TEAM,), overdraft_micro=overdraft, closed=name == "green") for name in names]
        self.events.append(accounts(*of))

    def _purse(self) -> Purse:
        return self.purses[self.random.choice((RED, BLUE))]

    def grant(self) -> None:
        """An operator asks, and is answered."""
        purse, amount = self._purse(), self.random.randrange(-500, 1000)
        self.keys += 1
        ask = asked(f"{self.keys}", amount, purse.account)
        self.events.append(ask)
        if self.random.random() < 0.2:
            refusal = AskRefused(**purse.next(), ask_id=ask.ask_id, code="not_covered", message="No.")
            self.events.append(refusal)
        elif amount >= 0:
            self.events.append(CreditGranted(**purse.next(), ask_id=ask.ask_id, amount_micro=amount))
            self.balances[purse.account] += amount
        else:
            cause = AdjustCause.OPERATOR
            self.events.append(CreditAdjusted(**purse.next(), ask_id=ask.ask_id, amount_micro=amount, cause=cause))
            self.balances[purse.account] += amount

    def reserve(self) -> None:
        """A run is to come."""
        purse, amount = self._purse(), self.random.randrange(300)
        self.runs += 1
        purse.run_id, purse.job_id = run_id_of(JobId(f"j{self.runs}"), 1), JobId(f"j{self.runs}")
        self.events.append(purse.reserved(amount))
        self.reserved[purse.run_id] = purse.account, purse.reservation, amount
        self.balances[purse.account] -= amount

    def _one(self) -> tuple[Purse, int] | None:
        if not self.reserved:
            return None
        run_id = self.random.choice(sorted(self.reserved))
        account, reservation, amount = self.reserved[run_id]
        purse = self.purses[account]
        purse.run_id, purse.job_id, purse.reservation = run_id, JobId(run_id.rpartition("-")[0]), reservation
        return purse, amount

    def go_on(self) -> None:
        """A run uses something, and more is set aside for it, or cannot be."""
        if (found := self._one()) is None:
            return
        purse, amount = found
        purse.records = 100 * len(self.events)  # so that ids differ
        self.events.append(purse.used(self.random.randrange(9), self.random.randrange(9)))
        if self.random.random() < 0.5:
            more = self.random.randrange(50)
            self.events.append(purse.renewed(more))
            self.reserved[purse.run_id] = purse.account, purse.reservation, amount + more
            self.balances[purse.account] -= more
        else:
            self.events.append(purse.running_out())

    def settle(self) -> None:
        """A run is over, or never was: in one go, or nearly."""
        if (found := self._one()) is None:
            return
        purse, amount = found
        del self.reserved[purse.run_id]
        if self.random.random() < 0.2:
            self.events.append(purse.refunded(amount, RefundCause.NEVER_PLACED))
            self.balances[purse.account] += amount
            return
        cost = self.random.randrange(amount + 1)
        if self.random.random() < 0.3:
            self.events.append(purse.uncovered(5))
            if self.random.random() < 0.5:
                self.events.append(purse.paid(purse.entry, 5))
                self.balances[purse.account] -= 5
        self.events.append(purse.committed(cost, 9))
        if amount > cost:
            evidence = (f"id-{len(self.events)}",)
            self.events.append(purse.refunded(amount - cost, RefundCause.PREEMPTED, gpu_us=3, evidence=evidence))
            self.balances[purse.account] += amount - cost


def paying(seed: int, steps: int) -> Paying:
    """What happened on accounts."""
    made = Paying(seed)
    for _ in range(steps):
        made.step()
    return made


def closed(purse: Purse) -> AccountClosed:
    """Nothing happens on its account any more."""
    return AccountClosed(**purse.next())
