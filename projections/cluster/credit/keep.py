"""The one way to put a bill or a book into the cluster: each change keeps the indexes that deciders look through."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from events.base import RunId
from projections.cluster.credit.book import Bill, End
from projections.cluster.credit.meter import next_hour
from projections.cluster.credit.state import Cover, Entry
from projections.cluster.job import OrderKey
from projections.cluster.state import Cluster

WORK_PART: Final = 10


def put_bill(cluster: Cluster, bill: Bill) -> None:
    """`bill` is in the cluster, and in the indexes where it belongs."""
    before = cluster.credits.bills.get(bill.run_id)
    cluster.credits.bills[bill.run_id] = bill
    if before is not None:
        if before.end is not None and bill.end is not None:
            return  # it is to be settled still
        _leave(cluster, before)
    if bill.end is not None:
        cluster.credits.settling[bill.run_id] = None
        return
    if not bill.gpu_type:
        cluster.credits.quoted.add(bill.terms, (bill.age,), bill.run_id)
    elif bill.reserved_micro > bill.needs_micro:
        cluster.credits.trimming[bill.run_id] = None
    if (key := stop_key(bill)) is not None:
        cluster.credits.covered.add(_cover(bill), key, bill.run_id)
    if (key := hour_key(bill)) is not None:
        cluster.credits.hours.add(None, key, bill.run_id)


def drop_bill(cluster: Cluster, run_id: RunId) -> None:
    """The bill is settled and forgotten."""
    _leave(cluster, cluster.credits.bills.pop(run_id))


def end_bill(cluster: Cluster, run_id: RunId, end: End) -> None:
    """What the bill is for, if there is one, is over: it is to be settled."""
    if (bill := cluster.credits.bills.get(run_id)) is not None:
        put_bill(cluster, replace(bill, end=end))


def put_debt(cluster: Cluster, of: Entry, owed: int) -> None:
    """So much of it is not paid; 0: it is."""
    if of not in cluster.credits.debts:
        cluster.credits.owing.add(of.account, (of.entry,), of)
    cluster.credits.debts[of] = owed
    if not owed:
        del cluster.credits.debts[of]
        cluster.credits.owing.remove(of.account, (of.entry,))


def _leave(cluster: Cluster, bill: Bill) -> None:
    if bill.end is not None:
        del cluster.credits.settling[bill.run_id]
        return
    if not bill.gpu_type:
        cluster.credits.quoted.remove(bill.terms, (bill.age,))
    elif bill.run_id in cluster.credits.trimming:
        del cluster.credits.trimming[bill.run_id]
    if (key := stop_key(bill)) is not None:
        cluster.credits.covered.remove(_cover(bill), key)
    if (key := hour_key(bill)) is not None:
        cluster.credits.hours.remove(None, key)


def stop_key(bill: Bill) -> OrderKey | None:
    """When its run would have to be told to stop, so that it ends within what is reserved; None: it ends before by itself."""
    if not bill.renews or bill.covered_until is None:
        return None
    # A tenth of what is covered is for its work: one whose grace is longer would be stopped as it starts, and start again.
    grace_s = min(bill.grace_s, bill.covers_s - (bill.covers_s + WORK_PART - 1) // WORK_PART)
    return _key(bill, bill.covered_until - timedelta(seconds=grace_s))


def _cover(bill: Bill) -> Cover:
    return Cover(bill.declared, bill.account) if bill.running_out is not None else Cover(bill.declared)


def hour_key(bill: Bill) -> OrderKey | None:
    """The next hour of the clock at which its use is recorded; None: it does not count yet."""
    if bill.counts_from is None:
        return None
    return _key(bill, next_hour(bill.recorded_until or bill.counts_from))


def _key(bill: Bill, at: datetime) -> OrderKey:
    """By time, then age. A job may have two attempts in one round, of which one leaves its place as the other comes."""
    return (at.timestamp(), bill.age, int(bill.run_id.rpartition("-")[2]))
