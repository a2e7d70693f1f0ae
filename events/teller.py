"""The teller family (`teller.<account>.<ask>`): what operators ask of an account. What becomes of it is in `events.credit`."""

from typing import ClassVar

from events.base import START, TELLER, AccountId, AskId, Count, Event, Family, Micro, MicroCount, Position


class TellerEvent(Event, kw_only=True, frozen=True):
    """An operator's wish about an account. Written by the gate, as the first record of its subject: a key is taken once."""

    family: ClassVar[Family] = TELLER

    account: AccountId
    ask_id: AskId
    key: str  # idempotency key, chosen by the client; the ask's id is derived from account and key
    request_hash: str  # tells a repeat from another ask under the same key


class GrantAsked(TellerEvent, kw_only=True, frozen=True, tag="musterbook.credit.grant_asked.v1"):
    """An operator wants an account to have more credits."""

    amount_micro: MicroCount
    reason: str = ""


class AdjustmentAsked(TellerEvent, kw_only=True, frozen=True, tag="musterbook.credit.adjustment_asked.v1"):
    """An operator wants a balance corrected, up or down; or what a run was charged given back.

    The gate has read the commit that is to be refunded, so that what it says of it is the log's own word.
    """

    amount_micro: Micro  # what the balance changes by
    refunds: Position = START  # of the `CreditCommitted` that is given back, in whole or in part; 0: of none
    refunds_entry: Count = 0  # its entry
    refunds_micro: MicroCount = 0  # what it committed
    reason: str = ""
