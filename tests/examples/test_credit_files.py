"""The files of accounts and prices in examples/, and the page about them: they are taken, and it names every field."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml
from pydantic import BaseModel

from events.accounts import AccountsSet
from events.ask import OperatorAsk
from events.job import Priority
from events.prices import PricesSet
from events.queues import QueuesSet
from services.gate.accounts import AccountsTyped, AccountTyped, accounts_oddities, checked_accounts
from services.gate.prices import PriceListTyped, PricesTyped, checked_prices, prices_oddities, unpriced
from services.gate.queues import checked_queues

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "credit-files.md").read_text()
AT = datetime(2026, 11, 30, tzinfo=UTC)
ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\|[^|]*\|[^|]*\|$", re.MULTILINE)
BLOCK = re.compile(r"\n\n((?:    [^\n]*\n)+)")


def example(name: str) -> Any:
    """A file of examples/."""
    return yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())


def block_after(heading: str) -> Any:
    """The first example below a heading of the page."""
    found = BLOCK.search(PAGE, PAGE.index(heading))
    assert found is not None
    return yaml.safe_load(found[1])


def accounts(raw: object) -> AccountsSet:
    """The accounts that are meant."""
    found = checked_accounts(raw, AT)
    assert isinstance(found, AccountsSet), found
    return found


def prices(raw: object) -> PricesSet:
    """The prices that are meant."""
    found = checked_prices(raw, AT)
    assert isinstance(found, PricesSet), found
    return found


def test_the_files_are_taken_together() -> None:
    """Without a warning, beside the example of queues, on the cluster that `muster up` starts."""
    queues = checked_queues(example("queues"), AT)
    assert isinstance(queues, QueuesSet)
    paying, costing = accounts(example("accounts")), prices(example("prices"))
    assert accounts_oddities(paying, None, queues, priced=True) == []
    assert prices_oddities(costing, paying) == unpriced(costing, {"h100"}, AT) == []


def test_the_page_names_every_field_with_its_default() -> None:
    """A field that is added has its row."""
    told = {found[0]: found[1].strip() for found in ROW.findall(PAGE)}
    models: tuple[type[BaseModel], ...] = (AccountsTyped, AccountTyped, PricesTyped, PriceListTyped)
    fields = {field.alias or name: field for model in models for name, field in model.model_fields.items()}
    assert told.keys() == fields.keys()
    assert {name for name, default in told.items() if default == "must be given"} == {
        name for name, field in fields.items() if field.is_required()
    }
    assert (told["overdraft"], told["closed"], told["step"]) == ("0", "false", "1s")


def test_the_examples_of_the_page_are_taken() -> None:
    """They are what first files are copied from."""
    first = accounts(block_after("## Accounts"))
    assert (first.closed_through, [account.name for account in first.accounts]) == (
        "2026-10", ["vision-2026", "research", "vision-2025"]
    )  # fmt: skip
    assert len(accounts(block_after("### A worked example")).accounts) == 3
    assert prices(block_after("## Prices")).lists[1].step_s == 60


def test_the_worked_example_of_prices_is_right() -> None:
    """By the second list of the page: the rate, the steps, what it costs and what comes back."""
    one = prices(block_after("## Prices")).lists[1]
    (micro,) = [price.micro_per_gpu_hour for price in one.prices if price.gpu_type == "h100"]
    (milli,) = [factor.milli for factor in one.factors if factor.priority is Priority.URGENT]
    steps = -(-timedelta(minutes=90, seconds=10) // timedelta(seconds=one.step_s))
    cost_micro = 8 * steps * one.step_s * micro * milli // 3_600 // 1_000
    assert (steps, cost_micro) == (91, 36_400_000)
    assert 8 * 4 * micro * milli // 1_000 - cost_micro == 59_600_000
    for told in ("91 steps of 60 s", "36.4 credits", "59.6 come back"):
        assert told in PAGE


def test_the_ask_of_the_page_is_one() -> None:
    """As a program would send it."""
    (ask,) = re.findall(r'`(\{"ask": "grant"[^`]*\})`', PAGE)
    msgspec.json.decode(ask.encode(), type=OperatorAsk)
