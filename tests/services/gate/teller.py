"""A log with accounts, and what the control plane would have written about them, for tests of the gate."""

from collections.abc import Sequence
from typing import Any

from events.ask import Accepted, Answer, Refused, SetAccounts
from events.base import AccountId, Event, JobId, Position, Recorded, RunId, TeamId
from events.credit import AccountClosed, CreditCommitted, CreditEvent, EndedAs
from events.head import LogFounded, RoundDecided
from events.log.memory import MemoryLog
from events.log.port import Unknown
from runtime.clock import ManualClock

CLOCK = ManualClock()
RED = AccountId("red-2026")
BLUE = AccountId("blue-2026")
JOB = JobId("jaaaaaaaaaaaaa")
DOCUMENT: dict[str, Any] = {"accounts": [{"name": RED, "queues": ["red"]}, {"name": BLUE, "queues": ["blue"]}]}


class Ledger(MemoryLog):
    """A log that can be written to as the control plane does, and that can be away."""

    def __init__(self) -> None:
        super().__init__("main", CLOCK.now)
        self.away = False
        self._head: Position | None = None

    async def first(self, subject: str) -> Recorded | None:
        """See `port.Reader`."""
        if self.away:
            raise Unknown("no answer", code="log_away")
        return await super().first(subject)

    async def decided(self, *events: Event) -> Position:
        """The position of the last of these, written in one round."""
        if self._head is None:
            self._head = await self.append([LogFounded(at=CLOCK.now(), log_id="m", cell="main")], after=Position(0))
        record = RoundDecided(at=CLOCK.now(), epoch=self._head, decided_at=self._head, events=len(events))
        last = await self.append([record, *events], after=self._head)
        self._head = Position(last - len(events))
        return last

    def facts(self, kind: type[Event]) -> Sequence[Any]:
        """All events of a kind."""
        return [recorded.event for recorded in self.stretch() if isinstance(recorded.event, kind)]


def accepted(answer: Answer) -> Accepted:
    """The answer, which must be good."""
    assert isinstance(answer, Accepted), answer
    return answer


def refused(answer: Answer) -> Refused:
    """The answer, which must be a refusal."""
    assert isinstance(answer, Refused), answer
    return answer


def commit(account: AccountId = RED, *, entry: int = 1, amount_micro: int = 80_000_000) -> CreditCommitted:
    """A run was paid for."""
    return CreditCommitted(
        at=CLOCK.now(), account=account, entry=entry, reservation=1, run_id=RunId(f"{JOB}-1"), job_id=JOB,
        team=TeamId("red"), amount_micro=amount_micro, gpu_us=1, gpu_type="h100", nano_per_gpu_hour=1,
        began=CLOCK.now(), ended=CLOCK.now(), outcome=EndedAs.SUCCEEDED,
    )  # fmt: skip


def closed(account: AccountId, *, entry: int = 1) -> CreditEvent:
    """An account is closed for ever."""
    return AccountClosed(at=CLOCK.now(), account=account, entry=entry)


def accounts(document: Any = DOCUMENT, over: Position | None = None) -> SetAccounts:
    """An ask to let these accounts pay."""
    return SetAccounts(document=document, replaces=over)
