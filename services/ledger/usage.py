"""Records of what runs used: of each hour of the clock once it is over, and of the rest when the run is settled.

They are cumulative: a record says what all that was used so far costs, less what the records before it said. So they add
up to one rounding, however many they are.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from events.credit import RefundCause, UsageRecorded
from events.policy import Bearer
from projections.cluster.credit.book import Bill
from projections.cluster.credit.meter import next_hour, used_by
from projections.cluster.credit.months import end_of, month_of
from projections.cluster.credit.price import cost_micro
from services.ledger.entries import Entries

RECORDED_MAX: Final = (
    1_000  # runs whose hour is recorded in a round, and hours of one run; the rest is the next round's
)
LATE: Final = timedelta(seconds=10)  # after an hour, before it is recorded: the server's clock may be behind ours


def record_hours(entries: Entries) -> None:
    """What runs that go on used in an hour of the clock that is over is recorded, one hour each, the longest ago first."""
    cluster, bearer = entries.cluster, entries.cluster.policy.uncovered
    for (hour_s, *_), run_id in islice(cluster.credits.hours.line(None), RECORDED_MAX):
        hour = datetime.fromtimestamp(hour_s, UTC)
        if hour + LATE > entries.tick.at:
            return
        bill = cluster.credits.bills[run_id]
        used_us = used_by(cluster.runs[run_id], bill, hour)
        cost = cost_micro(used_us, bill.rate.nano_per_gpu_hour)
        kept = min(bill.reserved_micro, bill.needs_micro)  # what is too much is refunded in this round
        payable = cost if bearer is Bearer.ACCOUNT else min(cost, kept)
        Records(entries, bill).record(hour, used_us, payable)


def record_rest(entries: Entries, bill: Bill, *, gpu_us: int, micro: int, cause: RefundCause) -> bool:
    """The records of a run that is over add up to what it is charged: `gpu_us` GPU-microseconds and `micro` micro-credits.

    What they said beyond that is taken back by one that says why. False: so many hours are left that some are the next
    round's.
    """
    records, end = Records(entries, bill), bill.end
    assert end is not None
    if bill.counts_from is not None:
        used_us = dict(end.marks)
        for written, hour in enumerate(_hours(records.until, end.ended)):
            if records.say(gpu_us, micro):
                break
            if written == RECORDED_MAX:
                return False
            so_far = min(used_us.get(hour, end.used_us), gpu_us)
            records.record(hour, so_far, min(cost_micro(so_far, bill.rate.nano_per_gpu_hour), micro))
        if not records.say(gpu_us, micro):
            records.record(max(end.ended, records.until), gpu_us, micro)
    records.correct(gpu_us, micro, cause)
    return True


def _hours(after: datetime, before: datetime) -> Iterator[datetime]:
    """The full hours between two times."""
    while (after := next_hour(after)) < before:
        yield after


class Records:
    """The usage records of one run: what they add up to, those of this round among them."""

    def __init__(self, entries: Entries, bill: Bill) -> None:
        self.until: datetime = bill.recorded_until or bill.counts_from or entries.tick.at
        self._entries, self._bill = entries, bill
        self._gpu_us, self._micro = bill.recorded_us, bill.recorded_micro
        self._number = bill.records

    def say(self, gpu_us: int, micro: int) -> bool:
        """Whether they say all of this, or more."""
        return self._gpu_us >= gpu_us and self._micro >= micro

    def record(self, until: datetime, gpu_us: int, micro: int) -> None:
        """One more, up to `until`: they add up to so much then, or stay where they are if that is more.

        It is of the month in which its time began, if that is open.
        """
        more = max(0, gpu_us - self._gpu_us), max(0, micro - self._micro)
        self._write(more, self.until, until, at=self._open(self.until))
        self.until = until

    def correct(self, gpu_us: int, micro: int, cause: RefundCause) -> None:
        """One that takes back what they say beyond this, if they do."""
        less = min(0, gpu_us - self._gpu_us), min(0, micro - self._micro)
        if any(less):
            began = self._bill.counts_from or self.until
            self._write(less, began, self.until, at=self._open(self._entries.tick.at), cause=cause)

    def _open(self, at: datetime) -> datetime:
        """This time, or one of now where its month is closed: the server's clock ran behind, or the leader's runs behind."""
        closed = self._entries.cluster.credits.month_closed
        if not closed or month_of(at) > closed:
            return at
        return max(self._entries.tick.at, end_of(closed))

    def _write(
        self,
        change: tuple[int, int],
        began: datetime,
        ended: datetime,
        *,
        at: datetime,
        cause: RefundCause | None = None,
    ) -> None:
        bill, (gpu_us, micro) = self._bill, change
        self._number += 1
        self._gpu_us += gpu_us
        self._micro += micro
        self._entries.write(
            UsageRecorded(
                at=at,
                **self._entries.next(bill.account),
                usage_id=f"{bill.run_id}-{self._number}",
                run_id=bill.run_id,
                job_id=bill.job_id,
                team=bill.team,
                gpu_type=bill.gpu_type,
                gpu_us=gpu_us,
                amount_micro=micro,
                nano_per_gpu_hour=bill.rate.nano_per_gpu_hour,
                began=began,
                ended=ended,
                corrects=cause is not None,
                cause=cause or "",
                prices=bill.prices,
            )
        )
