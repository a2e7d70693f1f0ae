"""What the ledger writes in one round: events, each entry of an account with the next number of that account."""

from typing import TypedDict, TypeVar

from events.base import AccountId, Event
from events.credit import CreditEvent
from projections.cluster.credit.book import Book
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick

Entered = TypeVar("Entered", bound=CreditEvent)


class OfAccount(TypedDict):
    """What every entry of an account says."""

    account: AccountId
    entry: int


class Entries:
    """The events of a round, in order. The cluster stays as it was: entries are counted along."""

    def __init__(self, cluster: Cluster, tick: Tick) -> None:
        self.cluster = cluster
        self.tick = tick
        self.events: list[Event] = []
        self._last: dict[AccountId, int] = {}

    def book(self, account: AccountId) -> Book:
        """The account, as it was before the round."""
        return self.cluster.credits.books[account]

    def next(self, account: AccountId) -> OfAccount:
        """The account and the number of its next entry, which is to be written."""
        last = self._last.get(account)
        entry = (last if last is not None else self.book(account).entry) + 1
        self._last[account] = entry
        return OfAccount(account=account, entry=entry)

    def write(self, event: Event) -> None:
        """The event is one of the round."""
        self.events.append(event)
