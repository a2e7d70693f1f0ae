"""The accounts family (`accounts`, one literal subject): who pays for which teams, each event the whole document."""

from typing import ClassVar

import msgspec

from events.base import ACCOUNTS, AccountId, Family, MicroCount, StandingDocument, TeamId


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One purse of credits, and whose jobs it pays for."""

    name: AccountId
    queues: tuple[TeamId, ...] = ()  # their jobs, and those of queues below them
    overdraft_micro: MicroCount | None = 0  # what is available goes below 0 by so much at the most; None: no such bound
    closed: bool = False  # nothing more is reserved; once all is settled, it is closed for ever


class AccountsSet(StandingDocument, kw_only=True, frozen=True, tag="musterbook.accounts.set.v1"):
    """From here on these accounts pay. Replaces the document before, whole.

    A job is paid for by the account that it names, or else by the first that lists its queue, or the nearest queue above
    it that any account lists. Jobs of queues that none lists are not charged. An account that is left out pays for
    nothing new and keeps its balance.
    """

    family: ClassVar[Family] = ACCOUNTS

    accounts: tuple[Account, ...] = ()  # names differ
    closed_through: str = ""  # "2026-11": months up to this one are closed, each once all its usage is recorded
