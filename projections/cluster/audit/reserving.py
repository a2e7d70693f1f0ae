"""The auditor's reading of reservations: with each admission that somebody pays for, at the prices of the time, and no others."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from events.accounts import Account
from events.base import AccountId, Recorded, TeamId
from events.credit import CreditRenewed, CreditReserved, CreditsRunningOut
from events.job import JobAdmitted, JobPlaced, JobSpec
from events.prices import PriceList
from projections.cluster.audit.books import Books, Finding
from projections.cluster.audit.credit import within
from projections.cluster.audit.purses import SECOND, Admitted, Charge, Payer, cost, name_of, stepped

NOBODY: Final = AccountId("")  # somebody has to pay, and nobody may
FACTOR_OF_ONE: Final = 1_000
LONGEST_S: Final = 10 * 366 * 86_400  # a declared runtime counts as no more


def before_reading(books: Books, recorded: Recorded | None) -> None:
    """A job that was admitted by the record before is paid for by this one. None: there is none any more."""
    admitted, e = books.credit.admitted, recorded.event if recorded is not None else None
    if admitted is None or (isinstance(e, CreditReserved) and e.job_id == admitted.job_id):
        return
    books.credit.admitted = None
    if admitted.account:
        message = f"{admitted.job_id} was admitted, {admitted.account} pays for it, and nothing was reserved"
        books.findings.append(Finding(admitted.position, "admitted when paid for", message))


def _admitted(books: Books, recorded: Recorded, e: JobAdmitted) -> None:
    job = books.jobs.get(e.job_id)
    account = _payer(books, e.team, job.spec.account if job is not None else "")
    if account == NOBODY:
        books.find(recorded, "admitted when paid for", f"{e.job_id} was admitted, and nobody may pay for it")
    books.credit.admitted = Admitted(recorded.position, e.job_id, e.team, account)


def _payer(books: Books, team: TeamId, named: str) -> AccountId | None:
    """Who pays for a job, by the documents that were decided on; None: it is not charged."""
    credit = books.credit
    key = Payer(credit.accounts.position(books.decided_at), credit.queues.position(books.decided_at), team, named)
    if key not in credit.payers:
        credit.payers[key] = _find_payer(books, team, named)
    return credit.payers[key]


def _find_payer(books: Books, team: TeamId, named: str) -> AccountId | None:
    accounts = books.credit.accounts.at(books.decided_at).accounts
    if not any(one.queues for one in accounts):
        return NOBODY if named else None
    path = list(_path(books, team))
    if named:
        found = next((one for one in accounts if one.name == named and set(one.queues) & set(path)), None)
        return _open(books, (found,) if found is not None else ())
    nearest = next((queue for queue in path if any(queue in one.queues for one in accounts)), None)
    return _open(books, tuple(one for one in accounts if nearest in one.queues)) if nearest is not None else None


def _open(books: Books, accounts: tuple[Account, ...]) -> AccountId:
    """The first that may pay. One that was closed stays closed, whatever the document says of it now."""
    return next((one.name for one in accounts if not (one.closed or books.credit.purses[one.name].closed)), NOBODY)


def _path(books: Books, team: TeamId) -> Iterator[str]:
    """The queues that a team's jobs count in, from its own up."""
    parents = {queue.name: queue.parent for queue in books.credit.queues.at(books.decided_at).queues}
    name: str = team
    for _ in range(len(parents) + 1):
        yield name
        name = parents.get(TeamId(name), "")
        if name not in parents:
            return


def _reserved(books: Books, recorded: Recorded, e: CreditReserved) -> None:
    credit, admitted, job = books.credit, books.credit.admitted, books.jobs.get(e.job_id)
    credit.admitted = None
    purse = credit.purses[e.account]
    purse.reserved += e.amount_micro
    purse.reservations += 1
    if admitted is None:
        books.find(recorded, "reserved with its admission", f"{name_of(e)}: the record before admits no such job")
    elif (admitted.account, admitted.team) != (e.account, e.team):
        books.find(recorded, "paid by its payer", f"{name_of(e)} in {e.team}; {admitted.account or 'nobody'} pays")
    if e.run_id in credit.charges or (job is not None and e.run_id != f"{e.job_id}-{job.attempts + 1}"):
        books.find(recorded, "reserved once", f"{name_of(e)}: it is not the run that the job has next")
    within(books, recorded, e)
    for message in (*_price_faults(books, e, e.at), *(_quote_faults(books, e, job.spec) if job is not None else ())):
        books.find(recorded, "priced as the list says", f"{name_of(e)}: {message}")
    credit.charges[e.run_id] = Charge(e, e.covers_s, e.amount_micro)
    credit.waiting[e.job_id] = e.run_id


def _price_faults(books: Books, e: CreditReserved, at: datetime) -> Iterator[str]:
    """What differs from the list in force at a time, of the document that was decided on."""
    prices = books.credit.prices
    lists = [one for one in prices.at(books.decided_at).lists if one.effective_from is None or one.effective_from <= at]
    if not lists or lists[-1].effective_from != e.effective_from:
        yield f"by the list of {e.effective_from}, in force is {lists[-1].effective_from if lists else None}"
    elif e.prices != (since := prices.since(books.decided_at, lambda before: lists[-1] in before.lists)):
        yield f"by document {e.prices}, the list in force is from {since}"
    elif lists[-1].step_s != e.step_s:
        yield f"in steps of {e.step_s} s, not {lists[-1].step_s}"


def _quote_faults(books: Books, e: CreditReserved, spec: JobSpec) -> Iterator[str]:
    """What differs from what such a job costs."""
    policy = books.credit.policies.at(books.decided_at)
    covers_s = min(spec.max_runtime_s or max(1, policy.instalment_s), LONGEST_S)
    if (e.gpus, e.covers_s, e.declared) != (spec.gpus, covers_s, bool(spec.max_runtime_s)):
        yield f"{e.gpus} GPUs for {e.covers_s} s, the job asks for {spec.gpus} for {covers_s}"
    if e.charge_from is not policy.charge_from:
        yield f"charged from {e.charge_from}, the policy says {policy.charge_from}"
    types = [rate.gpu_type for rate in e.rates]
    if not types or len(set(types)) < len(types) or (spec.gpu_types and not set(types) <= set(spec.gpu_types)):
        yield f"rates of {types}, accepted are {spec.gpu_types or 'any'}"
    document = books.credit.prices.at(books.decided_at)
    found = [one for one in document.lists if one.effective_from == e.effective_from]
    for rate in e.rates if found else ():
        if (nano := _nano(found[-1], rate.gpu_type, spec)) != rate.nano_per_gpu_hour:
            yield f"{rate.gpu_type} at {rate.nano_per_gpu_hour} nano-credits an hour, the list says {nano}"
    dearest = max((rate.nano_per_gpu_hour for rate in e.rates), default=0)
    if e.amount_micro != (amount := cost(e.gpus * stepped(e.covers_s * SECOND, e.step_s), dearest)):
        yield f"{e.amount_micro}, so much time costs {amount}"


def _nano(prices: PriceList, gpu_type: str, spec: JobSpec) -> int | None:
    found = [one for one in prices.prices if one.gpu_type == gpu_type] or [
        one for one in prices.prices if not one.gpu_type
    ]
    factors = [one.milli for one in prices.factors if one.priority is spec.priority]
    return found[0].micro_per_gpu_hour * (factors[0] if factors else FACTOR_OF_ONE) if found else None


def _placed(books: Books, recorded: Recorded, e: JobPlaced) -> None:
    """A job gets its GPUs at the prices of that moment."""
    if (charge := books.credit.charges.get(e.run_id)) is not None:
        for message in _price_faults(books, charge.reserved, e.at):
            books.find(recorded, "placed at the prices in force", f"{e.run_id} of {charge.reserved.account}: {message}")


def _renewed(books: Books, recorded: Recorded, e: CreditRenewed) -> None:
    purse = books.credit.purses[e.account]
    purse.reserved += e.amount_micro
    charge = books.credit.charges.get(e.run_id)
    within(books, recorded, e)
    if charge is None or not charge.is_of(e):
        books.find(recorded, "of an open reservation", f"{name_of(e)}: no reservation {e.reservation} is open")
        return
    if not charge.renews or charge.over is not None or charge.stopping is not None:
        books.find(recorded, "renewed while it runs on", f"{name_of(e)}: it does not")
    before = cost(charge.gpus * stepped(charge.covers_s * SECOND, charge.reserved.step_s), charge.nano)
    charge.covers_s += e.covers_s
    after = cost(charge.gpus * stepped(charge.covers_s * SECOND, charge.reserved.step_s), charge.nano)
    charge.amount_micro += e.amount_micro
    if e.amount_micro != after - before or not e.covers_s:
        message = f"{name_of(e)}: {e.amount_micro} for {e.covers_s} s, which cost {after - before}"
        books.find(recorded, "priced as the list says", message)


def _running_out(books: Books, recorded: Recorded, e: CreditsRunningOut) -> None:
    charge = books.credit.charges.get(e.run_id)
    if charge is None or not charge.is_of(e):
        books.find(recorded, "of an open reservation", f"{name_of(e)}: no reservation {e.reservation} is open")
    elif charge.since is None or e.until != charge.covered_until:
        books.find(recorded, "lasts as long as it lasts", f"{name_of(e)}: until {e.until}, not {charge.covered_until}")


RESERVING_READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {
    JobAdmitted: _admitted,
    JobPlaced: _placed,
    CreditReserved: _reserved,
    CreditRenewed: _renewed,
    CreditsRunningOut: _running_out,
}
