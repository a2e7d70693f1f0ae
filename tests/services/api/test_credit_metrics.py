"""What accounts have, as Prometheus reads it."""

from prometheus_client import CollectorRegistry, generate_latest

from events.base import AccountId
from projections.tables.account_view import AccountRow
from services.api.credit_metrics import ACCOUNTS_MAX, CreditMetrics, Purses


def account(name: str, balance: int = 0, *, listed: bool = True, closed: bool = False) -> AccountRow:
    """An account with so many micro-credits."""
    return AccountRow(
        AccountId(name), balance_micro=balance, reserved_micro=2, debt_micro=3, listed=listed, closed=closed
    )


def told(*accounts: AccountRow, asks: int = 0) -> str:
    """What is told of these."""
    registry, metrics = CollectorRegistry(), CreditMetrics()
    registry.register(metrics)
    assert generate_latest(registry) == b""  # nothing rather than old numbers
    metrics.shown = Purses(accounts, asks)
    return generate_latest(registry).decode()


def test_each_account_has_its_balance() -> None:
    """In credits; one that is closed for ever has none."""
    found = told(account("red", -1_500_000), account("old", 7, closed=True), asks=2)
    for line in (
        'muster_credits_balance{account="red"} -1.5',
        'muster_credits_reserved{account="red"} 2e-06',
        'muster_credits_owed{account="red"} 3e-06',
        "muster_credits_asks_waiting 2.0",
        "muster_credits_accounts 1.0",
    ):
        assert line in found
    assert "old" not in found


def test_no_more_are_told_than_can_be_scraped() -> None:
    """Those of the document first; how many there are is told all the same."""
    gone = [account(f"a{number:04}", listed=False) for number in range(ACCOUNTS_MAX)]
    found = told(*gone, account("red"))
    assert found.count("muster_credits_balance{") == ACCOUNTS_MAX
    assert 'muster_credits_balance{account="red"}' in found
    assert f"muster_credits_accounts {ACCOUNTS_MAX + 1.0}" in found
