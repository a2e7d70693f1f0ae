"""What operators type to say who pays for whom, checked field by field, and the `AccountsSet` that it means."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from events.accounts import Account, AccountsSet
from events.amounts import spelled_credits
from events.ask import Refused
from events.base import AccountId, TeamId
from events.queues import QueuesSet
from services.gate.changes import lines
from services.gate.decimals import credits_typed, decimal_schema, typed_decimal
from services.gate.names import shown
from services.gate.names_typed import NameField
from services.gate.problems import near, refusal, refusal_of, wrong
from services.gate.shape import shaped

ACCOUNTS_MAX: Final = 2_000
NAMED_MAX: Final = 5  # in one sentence
UNLIMITED: Final = "unlimited"
MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
EXAMPLE: Final = "for example  accounts: [{name: vision-2026, queues: [vision], overdraft: 500}]"
Wrong = tuple[str, str]  # a sentence that begins with the place, and a hint that may be empty


def checked_accounts(raw: object, at: datetime) -> AccountsSet | Refused:
    """The accounts that `raw`, a mapping as typed, describes; or all that is wrong with it, each with its place.

    Two documents that mean the same give the same event: an account's queues are kept in one order. That of the accounts
    says which of several pays for a queue.
    """
    document = shaped(raw, "accounts", "accounts", EXAMPLE)
    if isinstance(document, Refused):
        return document
    try:
        typed = AccountsTyped.model_validate(document)
    except ValidationError as error:
        return refusal_of(error, AccountsTyped)
    if found := [*_twice(typed.accounts), *_month_problems(typed.closed_through, at)]:
        return refusal(found)
    return AccountsSet(
        at=at, accounts=tuple(account.meant() for account in typed.accounts), closed_through=typed.closed_through
    )


def accounts_document(accounts: AccountsSet | None) -> dict[str, Any]:
    """How such a document is typed, with the fields that say something. Read back, it is the same."""
    told: dict[str, Any] = {}
    if accounts is not None and accounts.closed_through:
        told["closed_through"] = accounts.closed_through
    return told | {"accounts": [_fields_of(account) for account in (accounts.accounts if accounts else ())]}


def accounts_changes(before: AccountsSet | None, after: AccountsSet) -> list[str]:
    """What differs, a line an account; then the month, and the order of accounts that both name, where it matters."""
    old, new = (_facts(document) for document in (before, after))
    told = lines(old, new, sorted(old.keys() | new.keys()))
    was, now = before.closed_through if before else "", after.closed_through
    if was != now:
        told.append(f"~ closed_through: {was or 'none'} -> {now or 'none'}")
    order, wanted = ([name for name in names if name in old.keys() & new.keys()] for names in (old, new))
    return told if order == wanted else [*told, f"~ order: {', '.join(order)} -> {', '.join(wanted)}"]


def accounts_oddities(
    accounts: AccountsSet, before: AccountsSet | None, queues: QueuesSet | None, *, priced: bool
) -> list[str]:
    """What is legal in these accounts and probably not meant. `priced`: whether a list with prices is in force."""
    names = {account.name for account in accounts.accounts}
    told = [
        f"account {account.name} goes: it pays for nothing new and keeps its balance"
        for account in (before.accounts if before else ())
        if account.name not in names
    ]
    known = {queue.name for queue in queues.queues} if queues else set()
    closed = {account.name for account in (before.accounts if before else ()) if account.closed}
    for account in accounts.accounts:
        if account.closed and account.name not in closed:
            told.append(f"account {account.name} is closed for ever once nothing is reserved or owed on it")
        if not account.queues and not account.closed:
            told.append(f"account {account.name} lists no queue: it pays for no job")
        unknown = [queue for queue in account.queues if queue not in known]
        if unknown:
            told.append(
                f"account {account.name} lists {_some(unknown)}, and no queue is named so" + _meant(unknown, known)
            )
    if not priced and any(account.queues and not account.closed for account in accounts.accounts):
        told.append("no price is in force: jobs that these accounts pay for wait until there is one")
    return told


def kept_closed(before: AccountsSet | None, after: AccountsSet) -> AccountsSet:
    """`after`, with the months that are closed by `before` where it names none: a file need not be edited each month."""
    return after if after.closed_through or before is None else replace(after, closed_through=before.closed_through)


def takes_back(before: AccountsSet | None, after: AccountsSet, closed: Collection[AccountId]) -> list[Wrong]:
    """What `after`, with its months `kept_closed`, would take back though it is for ever: months, and accounts that the log calls `closed`."""
    found: list[Wrong] = []
    month = before.closed_through if before else ""
    if after.closed_through < month:
        told = f"is {after.closed_through}, earlier than {month}; months up to {month} are closed, for ever"
        found.append((f"closed_through: {told}", f"leave it out, or write {month}, or a later month"))
    for number, account in enumerate(after.accounts):
        if account.name in closed and not account.closed:
            told = f"accounts.{number}.closed: account {account.name} was closed, for ever"
            found.append((told, "write closed: true, or leave the account out; a new account has a new name"))
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _meant(unknown: Sequence[str], known: Collection[str]) -> str:
    hint = next((hint for name in unknown[:NAMED_MAX] if (hint := near(name, sorted(known)))), "")
    return f"; {hint}" if hint else ""


def _fields_of(account: Account) -> dict[str, Any]:
    told: dict[str, Any] = {"name": account.name, "queues": list(account.queues)}
    if account.overdraft_micro is None:
        told["overdraft"] = UNLIMITED
    elif account.overdraft_micro:
        told["overdraft"] = typed_decimal(account.overdraft_micro)
    return told | ({"closed": True} if account.closed else {})


def _facts(document: AccountsSet | None) -> dict[str, dict[str, str]]:
    return {
        str(account.name): {
            "queues": " ".join(account.queues) or "none",
            "overdraft": UNLIMITED if account.overdraft_micro is None else spelled_credits(account.overdraft_micro),
            "closed": str(account.closed).lower(),
        }
        for account in (document.accounts if document else ())
    }


def _twice(accounts: Sequence["AccountTyped"]) -> Iterator[Wrong]:
    first: dict[str, int] = {}
    for number, account in enumerate(accounts):
        earlier = first.setdefault(account.name, number)
        if earlier != number:
            told = f"accounts.{number}.name: {account.name!r} is there twice; the other is accounts.{earlier}"
            yield told, "one account may list many queues"


def _month_problems(month: str, at: datetime) -> Iterator[Wrong]:
    running = f"{at:%Y-%m}"
    if month >= running:
        yield (
            f"closed_through: {month} is not over; it is {running} now",
            "a month can be closed once it is over, in UTC",
        )


def _queues(value: object) -> object:
    if not isinstance(value, list | tuple):
        hint = f"for example  queues: [{value}]" if isinstance(value, str) else "for example  queues: [vision]"
        raise wrong(f"must be a list of names of queues, not {shown(value)}", hint)
    return tuple(value)


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise wrong(f"has {', '.join(twice[:NAMED_MAX])} twice")
    return tuple(sorted(names))


def _overdraft(value: object) -> int | None:
    if value == UNLIMITED:
        return None
    if value is None or value in (float("inf"), "none"):
        hint = f"write {UNLIMITED} for no bound, 0 for none at all"
        raise wrong(f"must be credits or {UNLIMITED}, not {shown(value)}", hint)
    if isinstance(value, str) and (hint := near(value, [UNLIMITED])):
        raise wrong(f"must be credits or {UNLIMITED}, not {shown(value)}", hint)
    return credits_typed(value)


def _month(value: object) -> str:
    if not isinstance(value, str) or (value and not MONTH.fullmatch(value)):
        raise wrong(f"must be a month such as 2026-10, not {shown(value)}")
    return value


def _list(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise wrong(f"must be a list of accounts, not {shown(value)}", "each begins with a dash:  - name: vision-2026")
    if len(value) > ACCOUNTS_MAX:
        raise wrong(f"are {len(value)}, {ACCOUNTS_MAX} is the most")
    return value


OVERDRAFT_SAYS: Final = "What is available goes below 0 by so much at the most: credits, or unlimited."
OVERDRAFT_SCHEMA: Final = decimal_schema(OVERDRAFT_SAYS)
OVERDRAFT_SCHEMA["anyOf"].append({"const": UNLIMITED})


class AccountTyped(BaseModel):
    """One purse of credits, and whose jobs it pays for."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Account")

    name: NameField = Field(
        description="Of the account; 1 to 24 of a-z, 0-9 and -. For ever: an account is known by it."
    )
    queues: Annotated[tuple[NameField, ...], BeforeValidator(_queues), AfterValidator(_once)] = Field(
        (), description="It pays for their jobs, and for those of queues below them."
    )
    overdraft: Annotated[int | None, BeforeValidator(_overdraft), WithJsonSchema(OVERDRAFT_SCHEMA)] = Field(
        0, description=OVERDRAFT_SAYS
    )
    closed: bool = Field(False, description="Nothing more is reserved; once all is settled, it is closed for ever.")

    def meant(self) -> Account:
        """As the log keeps it."""
        queues = tuple(TeamId(name) for name in self.queues)
        return Account(name=AccountId(self.name), queues=queues, overdraft_micro=self.overdraft, closed=self.closed)


class AccountsTyped(BaseModel):
    """All accounts, as people describe them."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Accounts")

    closed_through: Annotated[str, BeforeValidator(_month)] = Field(
        "",
        description="Months up to this one are closed, for ever: 2026-10. Left out: as before. Never an earlier one.",
    )
    accounts: Annotated[tuple[AccountTyped, ...], BeforeValidator(_list)] = Field(
        strict=False, description="Of several that list a queue, the first pays; [] for none."
    )


def accounts_schema() -> dict[str, Any]:
    """The JSON Schema of the document as typed, for editors and for the API's documents."""
    return AccountsTyped.model_json_schema()
