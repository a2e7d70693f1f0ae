"""Accounts kept a second time, as plain sums of what the log says, and asserts that must hold at every record of it."""

from collections import Counter
from typing import Any

from events.accounts import AccountsSet
from events.base import AccountId, Position, Recorded, RunId
from events.credit import (
    AccountClosed,
    AdjustCause,
    AskRefused,
    CreditAdjusted,
    CreditCommitted,
    CreditEvent,
    CreditGranted,
    CreditRefunded,
    CreditRenewed,
    CreditReserved,
    RefundCause,
    UsageRecorded,
    UsageUncovered,
)
from events.head import RoundDecided
from events.period import PeriodClosed
from events.policy import Bearer
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.credit.months import month_of
from projections.cluster.state import Cluster

Key = tuple[str, int]  # an account, and one of its entries


class Tally:
    """What a log that is read once, from its beginning, says of accounts. Asserts what can never be otherwise."""

    def __init__(self) -> None:
        self.position = Position(0)
        self.places: Counter[tuple[str, str]] = Counter()  # (account, place) -> micro-credits
        self.adjusted: Counter[str] = Counter()
        self.entries: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.closed: set[str] = set()
        self.asks: dict[str, GrantAsked | AdjustmentAsked] = {}
        self.answers: dict[str, CreditEvent] = {}
        self.left: dict[Key, int] = {}  # of each reservation ever
        self.open: set[Key] = set()  # those that are not resolved
        self.runs: dict[RunId, Key] = {}  # the last reservation of each
        self.commits: dict[Key, CreditCommitted] = {}  # by their own entry
        self.committed: dict[RunId, CreditCommitted] = {}
        self.given_back: Counter[Key] = Counter()
        self.debts: Counter[Key] = Counter()
        self.usage: Counter[RunId] = Counter()
        self.used_us: Counter[RunId] = Counter()
        self.borne: Counter[RunId] = Counter()  # uncovered, by accounts
        self.documents: list[tuple[Position, dict[str, int | None]]] = [
            (Position(0), {})
        ]  # overdrafts that are allowed
        self.decided_at = Position(0)
        self.month = ""

    def read(self, recorded: Recorded) -> None:
        """One more record."""
        assert recorded.position > self.position
        self.position = recorded.position
        match recorded.event:
            case RoundDecided() as e:
                self.decided_at = e.decided_at
            case AccountsSet() as e:
                self.documents.append((recorded.position, {a.name: a.overdraft_micro for a in e.accounts}))
            case GrantAsked() | AdjustmentAsked() as e:
                assert e.ask_id not in self.asks  # a key is taken once
                self.asks[e.ask_id] = e
            case PeriodClosed() as e:
                assert e.month > self.month
                self.month = e.month
            case CreditEvent() as e:
                self._entry(e)
            case _:
                pass

    def _entry(self, e: CreditEvent) -> None:
        self.kinds[type(e).__name__] += 1
        assert e.account not in self.closed  # nothing ever happens on a closed account again
        self.entries[e.account] += 1
        assert e.entry == self.entries[e.account]  # without a gap
        assert isinstance(getattr(e, "amount_micro", 0), int)
        match e:
            case CreditGranted():
                self._answer(e)
                self._move(e, "provider", "available", e.amount_micro)
            case CreditAdjusted():
                self._adjusted(e)
            case AskRefused():
                self._answer(e)
            case CreditReserved():
                assert (
                    self.runs.get(e.run_id) not in self.open
                )  # a run has one reservation at a time, and one that is used
                assert e.run_id not in self.committed
                self.open.add((e.account, e.entry))
                self.runs[e.run_id] = (e.account, e.entry)
                self.left[e.account, e.entry] = e.amount_micro
                self._take(e, "reserved", e.amount_micro)
            case CreditRenewed():
                assert self.runs[e.run_id] == (e.account, e.reservation)
                assert e.run_id not in self.committed
                self.left[e.account, e.reservation] += e.amount_micro
                self._take(e, "reserved", e.amount_micro)
            case CreditCommitted():
                assert e.run_id not in self.committed  # once
                self.committed[e.run_id] = self.commits[e.account, e.entry] = e
                self._release(e, "spent")
            case CreditRefunded():
                self._release(e, "available")
            case UsageUncovered():
                assert e.run_id not in self.committed
                if e.bearer is Bearer.ACCOUNT:
                    self.debts[e.account, e.entry] += e.amount_micro
                    self.borne[e.run_id] += e.amount_micro
            case UsageRecorded():
                assert e.run_id not in self.committed
                assert month_of(e.at) > self.month  # what is closed stays as it is
                self.usage[e.run_id] += e.amount_micro
                self.used_us[e.run_id] += e.gpu_us
            case AccountClosed():
                assert self.places[e.account, "reserved"] == 0
                assert not [key for key, owed in self.debts.items() if key[0] == e.account and owed]
                self.closed.add(e.account)
            case _:
                pass
        # Double entry: what is anywhere came from somewhere.
        places = ("provider", "available", "reserved", "spent")
        assert sum(self.places[e.account, place] for place in places) == 0
        assert self.places[e.account, "reserved"] >= 0

    def _move(self, e: CreditEvent, source: str, target: str, amount: int) -> None:
        self.places[e.account, source] -= amount
        self.places[e.account, target] += amount

    def _take(self, e: CreditEvent, target: str, amount: int) -> None:
        """What lowers what is available never takes it below what may be overdrawn, as the document was when it was decided."""
        self._move(e, "available", target, amount)
        document = next(document for position, document in reversed(self.documents) if position <= self.decided_at)
        overdraft = document.get(e.account, 0)
        assert amount == 0 or overdraft is None or self.places[e.account, "available"] >= -overdraft, e

    def _release(self, e: CreditCommitted | CreditRefunded, target: str) -> None:
        """What is resolved was reserved, for that run, and is still there."""
        key = (e.account, e.reservation)
        assert self.runs[e.run_id] == key
        assert key in self.open
        assert self.left[key] >= e.amount_micro
        self.left[key] -= e.amount_micro
        never_placed = isinstance(e, CreditRefunded) and e.cause is RefundCause.NEVER_PLACED
        assert not never_placed or (self.left[key] == 0 and e.run_id not in self.committed)
        if never_placed or (e.run_id in self.committed and not self.left[key]):
            self.open.remove(key)  # resolved, once
        self._move(e, "reserved", target, e.amount_micro)

    def _answer(self, e: Any) -> None:
        assert e.ask_id not in self.answers  # once
        asked = self.asks[e.ask_id]
        assert asked.account == e.account
        assert getattr(e, "amount_micro", asked.amount_micro) == asked.amount_micro
        self.answers[e.ask_id] = e

    def _adjusted(self, e: CreditAdjusted) -> None:
        key = (e.account, e.of_entry)
        if e.cause is AdjustCause.UNCOVERED:
            self.debts[key] += e.amount_micro
            assert self.debts[key] >= 0
        else:
            self._answer(e)
        if e.cause is AdjustCause.REFUND:
            self.given_back[key] += e.amount_micro
            assert self.given_back[key] <= self.commits[key].amount_micro  # of a commit, and never more than it
        self.adjusted[e.account] += e.amount_micro
        if e.amount_micro < 0:
            self._take(e, "provider", -e.amount_micro)
        else:
            self._move(e, "provider", "available", e.amount_micro)

    def assert_folded(self, cluster: Cluster) -> None:
        """A fold that read as far says the same of every account."""
        assert cluster.position == self.position
        for name, book in cluster.credits.books.items():
            assert book.balance == self.places[name, "available"], book
            assert book.reserved == self.places[name, "reserved"], book
            assert book.committed == self.places[name, "spent"], book
            assert book.adjusted == self.adjusted[name], book
            assert book.entry == self.entries[name], book
            assert book.closed == (name in self.closed)
            assert book.owed == sum(owed for key, owed in self.debts.items() if key[0] == name)
        open_of: Counter[AccountId] = Counter(bill.account for bill in cluster.credits.bills.values())
        assert {name: book.reservations for name, book in cluster.credits.books.items() if book.reservations} == open_of
        assert cluster.credits.month_closed == self.month

    def assert_settled(self) -> None:
        """All is over: reservations are resolved whole, and what was recorded is what was charged."""
        assert not self.open
        for run_id, commit in self.committed.items():
            assert self.usage[run_id] == commit.amount_micro + self.borne[run_id], commit
            assert self.used_us[run_id] == commit.gpu_us, commit
        assert self.usage.keys() <= self.committed.keys()
        assert self.answers.keys() == self.asks.keys() or self.closed
