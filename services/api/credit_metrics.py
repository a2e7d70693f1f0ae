"""What /metrics tells of credits: what accounts have, and what operators wait for."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from events.amounts import MICRO
from projections.tables import account_view, spending
from projections.tables.account_view import AccountRow
from runtime.postgres import Connection

ACCOUNTS_MAX: Final = 500  # that are told one by one: a series each costs whoever scrapes them


class Purses(NamedTuple):
    """What the tables show of credits."""

    accounts: Sequence[AccountRow]
    asks_waiting: int


async def purses_of(db: Connection) -> Purses:
    """All of it, at one position."""
    return Purses(await account_view.accounts(db), await spending.asks_waiting(db))


class CreditMetrics(Collector):
    """What the tables showed when metrics were asked for last."""

    def __init__(self) -> None:
        self.shown: Purses | None = None  # None: they cannot be read now, and nothing is told of them

    def collect(self) -> Iterator[Metric]:
        """See `Collector`. Closed accounts are counted and not told: nothing ever happens on them again."""
        if self.shown is None:
            return
        accounts = GaugeMetricFamily("muster_credits_accounts", "Accounts that are not closed.")
        still_open = [row for row in self.shown.accounts if not row.closed]
        accounts.add_metric((), len(still_open))
        waiting = GaugeMetricFamily("muster_credits_asks_waiting", "Grants and corrections that are not answered yet.")
        waiting.add_metric((), self.shown.asks_waiting)
        yield from (accounts, waiting, *_gauges(sorted(still_open, key=lambda row: (not row.listed, row.account))))


def _gauges(rows: Sequence[AccountRow]) -> Iterator[Metric]:
    """Of the first `ACCOUNTS_MAX`, those of the document before others."""
    balance = GaugeMetricFamily("muster_credits_balance", "Credits, less what is reserved.", labels=("account",))
    reserved = GaugeMetricFamily("muster_credits_reserved", "Credits set aside for runs.", labels=("account",))
    owed = GaugeMetricFamily("muster_credits_owed", "Credits used and not taken from it yet.", labels=("account",))
    for row in rows[:ACCOUNTS_MAX]:
        balance.add_metric((row.account,), row.balance_micro / MICRO)
        reserved.add_metric((row.account,), row.reserved_micro / MICRO)
        owed.add_metric((row.account,), row.debt_micro / MICRO)
    yield from (balance, reserved, owed)
