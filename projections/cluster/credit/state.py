"""What the log adds up to about credits, with the indexes that deciders look through: a part of the cluster."""

from collections.abc import MutableMapping
from typing import Final, NamedTuple

from events.base import START, AccountId, AskId, Position, RunId
from events.prices import PricesSet
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.credit.book import Bill, Book, Terms
from projections.cluster.credit.payers import Payers
from projections.cluster.overlay import Lines, fork_map


class Entry(NamedTuple):
    """One entry of an account."""

    account: AccountId
    entry: int


class Cover(NamedTuple):
    """Which runs that may need more are looked at together."""

    declared: bool  # what is reserved is for their declared runtime
    short: AccountId = AccountId("")  # the account that was found not to cover more, for those that are running out


class Credits:
    """Documents, accounts, and reservations that are not settled. Owned, forked and looked at as the cluster is."""

    def __init__(self) -> None:
        self.payers = Payers()  # as the accounts' document says; replaced whole
        self.payers_position: Position = START  # of that document
        self.prices: PricesSet | None = None  # likewise
        self.prices_since: tuple[Position, ...] = ()  # of each list in it, the document that it first stood in
        self.month_closed = ""  # the last, as "2026-11"
        self.books: MutableMapping[AccountId, Book] = {}
        self.bills: MutableMapping[RunId, Bill] = {}  # reservations that are not settled
        self.asked: MutableMapping[AskId, GrantAsked | AdjustmentAsked] = {}  # that was not answered yet
        self.debts: MutableMapping[Entry, int] = {}  # `UsageUncovered` that its account bears and has not paid yet
        self.given_back: MutableMapping[Entry, int] = {}  # of `CreditCommitted`, by later adjustments
        # What follows is made from the bills and the debts, and kept by `keep`.
        self.owing: Lines[AccountId, Entry] = Lines()  # debts, by account
        self.settling: MutableMapping[RunId, None] = {}  # of runs that are over
        self.trimming: MutableMapping[RunId, None] = {}  # with more reserved than the run can use
        self.quoted: Lines[Terms, RunId] = Lines()  # of jobs without GPUs
        self.covered: Lines[Cover, RunId] = Lines()  # that are renewed, by when the run would have to be told to stop
        self.hours: Lines[None, RunId] = Lines()  # of runs that count, by the next hour of the clock to record

    def headroom(self, account: AccountId) -> int | None:
        """Micro-credits that may still be reserved or taken; None: no bound. Less than 0 where it is overdrawn beyond its bound."""
        listed = self.payers.by_name.get(account)
        overdraft = listed.overdraft_micro if listed is not None else 0
        return self.books[account].balance + overdraft if overdraft is not None else None

    def fork(self) -> "Credits":
        """Credits that start as these and can be changed without changing them."""
        fork = object.__new__(Credits)
        fork.__dict__.update(self.__dict__)
        for name in FORKED:
            setattr(fork, name, fork_map(getattr(self, name)))
        fork.quoted, fork.covered, fork.hours = self.quoted.fork(), self.covered.fork(), self.hours.fork()
        fork.owing = self.owing.fork()
        return fork


FORKED: Final = ("books", "bills", "asked", "debts", "given_back", "settling", "trimming")
