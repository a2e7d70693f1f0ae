"""Who pays for whom, as the accounts' document says."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from events.accounts import Account, AccountsSet
from events.base import AccountId
from events.job import HoldCode
from projections.cluster.credit.months import is_month


class Payers:
    """The accounts of a document, by queue and by name. Nothing in it changes."""

    def __init__(self, document: AccountsSet | None = None, *, closed: Collection[AccountId] = ()) -> None:
        """`closed`: accounts that are closed for ever, whatever the document says of them now."""
        self.document = document
        accounts: Iterable[Account] = document.accounts if document is not None else ()
        self.by_name = {
            account.name: replace(account, closed=True) if account.name in closed else account for account in accounts
        }
        self._by_queue: dict[str, list[Account]] = {}
        for account in self.by_name.values():
            for queue in account.queues:
                self._by_queue.setdefault(queue, []).append(account)
        self.closing = sorted(account.name for account in self.by_name.values() if account.closed)
        through = document.closed_through if document is not None else ""
        self.closed_through = through if is_month(through) else ""

    def __bool__(self) -> bool:
        return bool(self._by_queue)

    def payer(self, path: Sequence[str], named: str) -> Account | HoldCode | None:
        """The account that pays for a job; None: nobody charges it; a code: it must wait for one.

        `path`: the queues that the job counts in, from its own up (`Tree.path`). `named`: as its spec says, or empty.
        """
        if not self._by_queue:
            return HoldCode.NO_ACCOUNT if named else None
        if named:
            account = self.by_name.get(AccountId(named))
            allowed = account is not None and not account.closed and not set(account.queues).isdisjoint(path)
            return account if account is not None and allowed else HoldCode.NO_ACCOUNT
        for queue in path:
            if (accounts := self._by_queue.get(queue)) is not None:
                return next((account for account in accounts if not account.closed), HoldCode.NO_ACCOUNT)
        return None
