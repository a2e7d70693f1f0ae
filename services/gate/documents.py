"""The standing documents that operators set: queues, policy, accounts, prices; each only over the one that its writer saw."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from events.accounts import AccountsSet
from events.ask import Accepted, Answer, RefusalCode, Refused, SetAccounts, SetDocument, SetPolicy, SetPrices, SetQueues
from events.base import START, AccountId, Position, Recorded, StandingDocument
from events.credit import AccountClosed
from events.log.port import Reader, Unknown
from events.policy import PolicySet
from events.prices import PricesSet
from events.queues import QueuesSet
from runtime.clock import Clock
from services.gate import queue_tree
from services.gate.accounts import (
    accounts_changes,
    accounts_document,
    accounts_oddities,
    checked_accounts,
    kept_closed,
    takes_back,
)
from services.gate.lane import AWAY, LOOKUPS_MAX, moved
from services.gate.policy import checked_policy, policy_changes, policy_document, policy_oddities
from services.gate.prices import checked_prices, priced, prices_changes, prices_document, prices_oddities
from services.gate.problems import refusal
from services.gate.queues import checked_queues, queues_changes, queues_document

AGAIN: Final = "try again in a moment: the document that holds already is not written twice"
DocumentT = TypeVar("DocumentT", bound=StandingDocument)


class Kind(NamedTuple):
    """How one kind of document is read, shown and compared. The functions take documents of its own type, or None."""

    event: type[StandingDocument]
    checked: Callable[[object, datetime], Any]  # the event that a mapping means, or `Refused`
    document: Callable[[Any], dict[str, Any]]  # as it is typed
    changes: Callable[[Any, Any], list[str]]  # from the one before, or None

    @property
    def subject(self) -> str:
        """Where it stands in the log, alone."""
        return self.event.family.name

    def of(self, recorded: Recorded | None) -> StandingDocument | None:
        """The document that a record holds; None for none that this version can read."""
        event = recorded.event if recorded else None
        return event if isinstance(event, self.event) else None


QUEUES: Final = Kind(QueuesSet, checked_queues, queues_document, queues_changes)
POLICY: Final = Kind(PolicySet, checked_policy, policy_document, policy_changes)
ACCOUNTS: Final = Kind(AccountsSet, checked_accounts, accounts_document, accounts_changes)
PRICES: Final = Kind(PricesSet, checked_prices, prices_document, prices_changes)
KINDS: Final[dict[type, Kind]] = {
    SetQueues: QUEUES, SetPolicy: POLICY, SetAccounts: ACCOUNTS, SetPrices: PRICES
}  # fmt: skip


class Held(NamedTuple):
    """The document that holds."""

    document: dict[str, Any]  # as it is typed
    position: Position  # `START`: nobody has set one
    recorded: Recorded | None


class Documents:
    """Reads and prepares standing documents. Asks become events that say what they replace."""

    def __init__(self, log: Reader, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def queues(self) -> Held:
        """The queues that hold, as typed. Raises `Unknown` when the log does not answer."""
        return await self._held(QUEUES)

    async def policy(self) -> Held:
        """The policy that holds, as typed. Raises `Unknown` when the log does not answer."""
        return await self._held(POLICY)

    async def accounts(self) -> Held:
        """The accounts that hold, as typed. Raises `Unknown` when the log does not answer."""
        return await self._held(ACCOUNTS)

    async def prices(self) -> Held:
        """The prices that hold, as typed. Raises `Unknown` when the log does not answer."""
        return await self._held(PRICES)

    async def prepared(self, ask: SetDocument, by: str) -> "Prepared | Answer":
        """The event that an ask means, with what it changes; or the answer, where there is nothing to write.

        The document that holds already is accepted whatever the ask replaces: who asks again after a lost answer gets
        the answer that was lost.
        """
        kind = KINDS[type(ask)]
        wanted = kind.checked(ask.document, self._clock.now())
        if isinstance(wanted, Refused):
            return wanted
        try:
            return await self._over(kind, wanted, ask, by)
        except Unknown:
            return replace(AWAY, hint=AGAIN)

    async def _held(self, kind: Kind) -> Held:
        recorded = await self._log.last(kind.subject)
        return Held(kind.document(kind.of(recorded)), recorded.position if recorded else START, recorded)

    async def _over(self, kind: Kind, wanted: StandingDocument, ask: SetDocument, by: str) -> "Prepared | Answer":
        """See `prepared`. Raises `Unknown`."""
        held = await self._log.last(kind.subject)
        before, position = kind.of(held), held.position if held else START
        if isinstance(wanted, AccountsSet) and isinstance(before, AccountsSet):
            wanted = kept_closed(before, wanted)
        if before is not None and _same(before, wanted):
            return Accepted(position=position, repeated=True, warnings=await self._warnings(wanted, before))
        if ask.replaces is not None and ask.replaces != position:
            return moved(wanted, held)
        if isinstance(wanted, AccountsSet):
            closed = await self._closed([account.name for account in wanted.accounts if not account.closed])
            if found := takes_back(before if isinstance(before, AccountsSet) else None, wanted, closed):
                return refusal(found)
        event = replace(wanted, by=by, trace=ask.trace, replaces=ask.replaces)
        return Prepared(event, position, tuple(kind.changes(before, event)), await self._warnings(event, before))

    async def _closed(self, names: list[AccountId]) -> set[AccountId]:
        """Those of these accounts that are closed for ever. Raises `Unknown`."""
        gate = asyncio.Semaphore(LOOKUPS_MAX)

        async def look(name: AccountId) -> bool:
            async with gate:
                last = await self._log.last(f"credit.{name}")
            return last is not None and isinstance(last.event, AccountClosed)

        found = await asyncio.gather(*map(look, names))
        return {name for name, closed in zip(names, found, strict=True) if closed}

    async def _warnings(self, event: StandingDocument, before: StandingDocument | None) -> tuple[str, ...]:
        """What is legal in a document and probably not meant, beside the others that hold. Raises `Unknown`."""
        match event:
            case QueuesSet():
                old = before.queues if isinstance(before, QueuesSet) else ()
                return tuple(queue_tree.oddities(event.queues, old))
            case PolicySet():
                return tuple(policy_oddities(event))
            case AccountsSet():
                queues, prices = await self._last(QueuesSet), await self._last(PricesSet)
                was = before if isinstance(before, AccountsSet) else None
                return tuple(accounts_oddities(event, was, queues, priced=priced(prices, event.at)))
            case PricesSet():
                return tuple(prices_oddities(event, await self._last(AccountsSet)))
            case _:
                raise AssertionError(event)

    async def _last(self, kind: type[DocumentT]) -> DocumentT | None:
        """The document of a kind that holds, where this version can read it. Raises `Unknown`."""
        recorded = await self._log.last(kind.family.name)
        return recorded.event if recorded and isinstance(recorded.event, kind) else None


class Prepared(NamedTuple):
    """A document that may be written."""

    event: StandingDocument
    position: Position  # of the one that holds
    changes: tuple[str, ...]
    warnings: tuple[str, ...]

    def told(self, answer: Answer) -> Answer:
        """The answer with what the document changes, where it was accepted."""
        if isinstance(answer, Refused):
            return replace(answer, hint=AGAIN) if answer.code in {RefusalCode.UNKNOWN, RefusalCode.BUSY} else answer
        return replace(answer, changes=self.changes, warnings=self.warnings)


def _same(held: StandingDocument, wanted: StandingDocument) -> bool:
    return replace(held, at=wanted.at, by=wanted.by, trace=wanted.trace, replaces=wanted.replaces) == wanted
