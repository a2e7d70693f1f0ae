"""What operators ask of accounts, made into events: of accounts that there are, in exact amounts, each under a key of its own."""

import hashlib
from typing import Final

import msgspec
from msgspec.structs import replace

from events.accounts import AccountsSet
from events.amounts import DECIMAL_RULE, MICRO, micro_credits, spelled_credits
from events.ask import AccountAsk, Adjust, Answer, Grant, RefusalCode, Refused
from events.base import START, AccountId, Recorded, spelled
from events.credit import AccountClosed, CreditCommitted
from events.log.port import Reader, Unknown
from events.subjects import family_subject
from events.teller import AdjustmentAsked, GrantAsked
from runtime.clock import Clock
from services.gate.decimals import CREDITS_MAX
from services.gate.keys import answer_over
from services.gate.lane import AWAY
from services.gate.names import ask_id_for, name_problem, near_name, shown
from services.gate.problems import near
from services.gate.reports import invalid

AGAIN: Final = "try again in a moment, with the same key"


class AccountAsks:
    """Prepares what an ask of an account writes. Whether it is done, the control plane decides: `events.credit` says."""

    def __init__(self, log: Reader, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def prepared(self, ask: AccountAsk, by: str) -> GrantAsked | AdjustmentAsked | Answer:
        """The event that an ask means; or the answer, where it is refused or its key was used before.

        A key that was used is answered by what it stands for, whatever has become of the account since.
        """
        asked = self._read(ask, by)
        if isinstance(asked, Refused):
            return asked
        try:
            first = await self._log.first(family_subject(asked))
            if first is not None:
                return answer_over(asked, first)
            problem = await self._account_problem(ask.account)
            if problem is not None or isinstance(asked, GrantAsked) or not asked.refunds:
                return problem or asked
            return self._refunding(asked, await self._log.read(asked.refunds))
        except Unknown:
            return replace(AWAY, hint=AGAIN)

    def _read(self, ask: AccountAsk, by: str) -> GrantAsked | AdjustmentAsked | Refused:
        """The event that an ask means by itself."""
        if problem := name_problem(ask.account):
            near_one = near_name(ask.account, 24)
            hint = f"for example {near_one}" if near_one else ""
            return Refused(code=RefusalCode.INVALID, message=f"account: {problem}", hint=hint)
        amount = _amount(ask)
        if isinstance(amount, Refused):
            return amount
        now, ask_id, digest = self._clock.now(), ask_id_for(ask.account, ask.key), _request_hash(ask, amount)
        if isinstance(ask, Grant):
            return GrantAsked(
                at=now, by=by, trace=ask.trace, account=ask.account, ask_id=ask_id, key=ask.key, request_hash=digest,
                amount_micro=amount, reason=ask.reason,
            )  # fmt: skip
        return AdjustmentAsked(
            at=now, by=by, trace=ask.trace, account=ask.account, ask_id=ask_id, key=ask.key, request_hash=digest,
            amount_micro=amount, refunds=ask.refunds, reason=ask.reason,
        )  # fmt: skip

    async def _account_problem(self, account: AccountId) -> Refused | None:
        """What keeps an account from being asked anything. Raises `Unknown`."""
        last = await self._log.last(f"credit.{account}")
        if last is not None and isinstance(last.event, AccountClosed):
            told = f"account: {account!r} was closed at position {spelled(last.position)}, for ever"
            return Refused(
                code=RefusalCode.INVALID, message=told, hint="nothing happens on it any more; ask of another one"
            )
        if last is not None:
            return None
        document = await self._log.last(AccountsSet.family.name)
        listed = document.event.accounts if document and isinstance(document.event, AccountsSet) else ()
        names = [one.name for one in listed]
        if account in names:
            return None
        hint = near(account, names) or "the accounts' document names it first: muster credits accounts apply"
        return Refused(code=RefusalCode.NOT_FOUND, message=f"account: there is none named {account!r}", hint=hint)

    def _refunding(self, asked: AdjustmentAsked, found: Recorded | None) -> AdjustmentAsked | Refused:
        """The ask with what the commit says that it gives back: the log's own word."""
        place = f"refunds: the record at position {spelled(asked.refunds)}"
        commit = found.event if found else None
        if not isinstance(commit, CreditCommitted):
            told = (
                f"{place} is no commit of a run"
                if found
                else f"refunds: there is no record at position {spelled(asked.refunds)}"
            )
            return Refused(
                code=RefusalCode.NOT_FOUND,
                message=told,
                hint="statements of the account show commits with their positions",
            )
        if commit.account != asked.account:
            return invalid(f"{place} is a commit of account {commit.account!r}, not of {asked.account!r}")
        if asked.amount_micro <= 0:
            return invalid(
                f"credits: must be more than 0 to give something back, not {spelled_credits(asked.amount_micro)}"
            )
        if asked.amount_micro > commit.amount_micro:
            most, given = spelled_credits(commit.amount_micro), spelled_credits(asked.amount_micro)
            return invalid(f"credits: {given} is more than the {most} that were committed for run {commit.run_id}")
        return replace(asked, refunds_entry=commit.entry, refunds_micro=commit.amount_micro)


def _amount(ask: AccountAsk) -> int | Refused:
    """What the ask says in micro-credits, exactly."""
    micro = micro_credits(ask.credits.strip())
    if micro is None:
        hint = "without commas: 1000, 0.5" if "," in ask.credits else ""
        return Refused(
            code=RefusalCode.INVALID, message=f"credits: must be {DECIMAL_RULE}, not {shown(ask.credits)}", hint=hint
        )
    if isinstance(ask, Grant) and micro <= 0:
        hint = "an adjustment can take credits away" if micro < 0 else ""
        message = f"credits: a grant must be more than 0, not {shown(ask.credits)}"
        return Refused(code=RefusalCode.INVALID, message=message, hint=hint)
    if micro == 0:
        return invalid("credits: must not be 0: nothing would change")
    if abs(micro) > CREDITS_MAX * MICRO:
        return invalid(f"credits: {CREDITS_MAX} is the most in one ask, not {shown(ask.credits)}")
    return micro


def _request_hash(ask: AccountAsk, amount_micro: int) -> str:
    """What tells a repeat from another ask: what it is, its exact amount, and what it says; never how that was spelled."""
    refunds = ask.refunds if isinstance(ask, Adjust) else START
    told = [type(ask).__struct_config__.tag, amount_micro, ask.reason, refunds]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()
