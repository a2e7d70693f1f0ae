"""The auditor's reading of accounts: every entry follows on those before it, and does what the documents of the time let it do."""

from collections.abc import Callable
from typing import Any, Final

from events.accounts import AccountsSet
from events.base import AccountId, Recorded
from events.credit import (
    CreditEvent,
)
from events.prices import PricesSet
from events.queues import QueuesSet
from projections.cluster.audit.books import Books
from projections.cluster.audit.purses import Purse

NO_ACCOUNT: Final = AccountId("")  # somebody has to pay for the job, and nobody may


def _accounts_set(books: Books, recorded: Recorded, e: AccountsSet) -> None:
    books.credit.accounts.put(recorded.position, e)
    for account in e.accounts:
        books.credit.purses.setdefault(account.name, Purse())


def _prices_set(books: Books, recorded: Recorded, e: PricesSet) -> None:
    books.credit.prices.put(recorded.position, e)


def _queues_set(books: Books, recorded: Recorded, e: QueuesSet) -> None:
    books.credit.queues.put(recorded.position, e)


def _entry(books: Books, recorded: Recorded, e: CreditEvent) -> None:
    """Each account counts its entries, and has none after its last."""
    purse = books.credit.purses.get(e.account)
    if purse is None:
        books.find(recorded, "entries in order", f"{said(e)}, an account that no document named")
        purse = books.credit.purses[e.account] = Purse()
    if purse.closed:
        books.find(recorded, "nothing after closing", f"{said(e)}, which was closed with entry {purse.entry}")
    if e.entry != purse.entry + 1:
        books.find(recorded, "entries in order", f"{said(e)} follows entry {purse.entry}")
    purse.entry = e.entry


def said(e: CreditEvent) -> str:
    """How findings name an entry."""
    run = f" for {run_id}" if (run_id := getattr(e, "run_id", "")) else ""
    return f"{type(e).__name__} {e.entry} of {e.account}{run}"


CREDIT_READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {
    AccountsSet: _accounts_set,
    PricesSet: _prices_set,
    QueuesSet: _queues_set,
    CreditEvent: _entry,
}
