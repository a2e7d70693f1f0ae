"""What a job has reserved, or would have: on which account, how that is worked out, and what is missing."""

from datetime import datetime
from typing import Final, NamedTuple

from events.amounts import spelled_credits, told_credits
from events.base import AccountId, run_id_of
from events.credit import Rate
from events.job import HoldCode, JobSpec
from projections.cluster.credit.book import Bill
from projections.cluster.credit.price import MICRO, list_at, rate_of, stepped_us
from projections.cluster.credit.quote import AMOUNT_MAX, Quote, market_of, may_get, quote
from projections.cluster.job import Job, JobState
from projections.cluster.state import Cluster

NANO_PLACES: Final = 9


class Charge(NamedTuple):
    """The credits of a job."""

    account: AccountId = AccountId("")  # empty: nobody charges it, or nobody may
    micro: int | None = None  # reserved for its run, or to be reserved before it may run
    has: int | None = None  # what the account can still pay; None: no bound
    short: int = 0  # of what is to be reserved
    told: str = ""  # how it is worked out


def quoted_for(cluster: Cluster, job: Job, at: datetime) -> Quote | HoldCode | None:
    """What is to be reserved for a job that is not admitted; a code: why it waits; None: nobody charges it."""
    if not cluster.credits.payers and not job.spec.account:
        return None
    return quote(market_of(cluster), job.team, job.spec, at)


def short_micro(cluster: Cluster, quoted: Quote) -> int:
    """How much its account cannot pay; 0 where it can. As admission judges it: what costs nothing can always be paid."""
    headroom = cluster.credits.headroom(quoted.account)
    if quoted.amount_micro > AMOUNT_MAX:
        return quoted.amount_micro - (headroom or 0)
    return max(0, quoted.amount_micro - headroom) if headroom is not None and quoted.amount_micro else 0


def unpaid(cluster: Cluster, quoted: Quote | HoldCode | None) -> HoldCode | None:
    """Why nobody can pay for it now; None where somebody can, or need not."""
    if isinstance(quoted, Quote):
        return HoldCode.CREDITS if short_micro(cluster, quoted) else None
    return quoted


def charge_of(cluster: Cluster, job: Job, at: datetime) -> Charge:
    """What its account has reserved for it, or is to reserve before it may run."""
    attempt = job.attempt if job.state is JobState.PLACED else job.attempt + 1
    bill = cluster.credits.bills.get(run_id_of(job.job_id, attempt))
    if job.state is not JobState.QUEUED:
        return _of_bill(cluster, bill) if bill is not None else Charge()
    quoted = quoted_for(cluster, job, at)
    if not isinstance(quoted, Quote):
        return Charge()
    return Charge(
        quoted.account,
        quoted.amount_micro,
        cluster.credits.headroom(quoted.account),
        short_micro(cluster, quoted),
        worked_out(quoted.gpus, quoted.covers_s, quoted.step_s, quoted.dearest, declared=quoted.declared),
    )


def _of_bill(cluster: Cluster, bill: Bill) -> Charge:
    told = worked_out(bill.gpus, bill.covers_s, bill.step_s, bill.rate, declared=bill.declared)
    return Charge(bill.account, bill.reserved_micro, cluster.credits.headroom(bill.account), 0, told)


def worked_out(gpus: int, covers_s: int, step_s: int, rate: Rate, *, declared: bool) -> str:
    """An amount, as its factors."""
    number = f"{gpus} GPU{'' if gpus == 1 else 's'}"
    hours = duration(stepped_us(covers_s * MICRO, step_s) // MICRO)
    each = price_of(rate)
    why = "" if declared else "; it declares no max_runtime: more is reserved while it runs"
    return f"{number} for {hours} at {each}{why}"


def price_of(rate: Rate) -> str:
    """`2.5 credits a GPU-hour (h100)`."""
    whole, rest = divmod(rate.nano_per_gpu_hour, MICRO * 1_000)
    places = f".{rest:0{NANO_PLACES}}".rstrip("0") if rest else ""
    unit = "credit" if (whole, rest) == (1, 0) else "credits"
    return f"{whole}{places} {unit} a GPU-hour{f' ({rate.gpu_type})' if rate.gpu_type else ''}"


def duration(seconds: int) -> str:
    """A time in the largest unit that says it exactly."""
    if seconds and not seconds % 3_600:
        return f"{seconds // 3_600} h"
    return f"{seconds // 60} min" if seconds and not seconds % 60 else f"{seconds} s"


# What is said of jobs that nobody can pay for


def credits_short(cluster: Cluster, job: Job, at: datetime) -> tuple[str, str]:
    """The account cannot pay for the whole of it."""
    charge = charge_of(cluster, job, at)
    need, has, short = told_credits(charge.micro or 0), spelled_credits(charge.has or 0), told_credits(charge.short)
    message = f"needs {need} ({charge.told}), has {has}, short {short} of account {charge.account}"
    shorter = "declare a shorter max_runtime" if job.spec.max_runtime_s else "declare a short max_runtime"
    return message, f"wait for others to give credits back, {shorter}, or ask an operator for credits"


def no_account(cluster: Cluster, job: Job) -> tuple[str, str]:
    """It names none that it may charge; or those of its queue are closed."""
    named = job.spec.account
    if not named:
        return f"all accounts of queue {job.team} are closed", "ask an operator for an account that is open"
    account = cluster.credits.payers.by_name.get(AccountId(named))
    if account is None:
        known = "is no account"
    elif account.closed:
        known = "is closed"
    else:
        known = f"pays for other queues: {', '.join(account.queues) or 'none'}"
    path = set(cluster.tree.path(job.team))
    own = [a.name for a in cluster.credits.payers.by_name.values() if not a.closed and not path.isdisjoint(a.queues)]
    action = f"submit it with account {' or '.join(sorted(own))}" if own else "submit it without an account"
    return f"it names account {named}, which {known}", action


def no_price(cluster: Cluster, job: Job, at: datetime) -> tuple[str, str]:
    """A GPU type that it may get is in no list, or no list is in force."""
    prices = list_at(cluster.credits.prices, at)
    if prices is None:
        return "no price list is in force", "ask an operator to set prices"
    missing = unpriced(cluster, job.spec, at)
    types = " or ".join(missing) if any(missing) else "any type"
    return (
        f"no price is set for GPUs of {types}, which it may get",
        f"ask an operator for a price of {types}, or name types that have one in gpu_types",
    )


def unpriced(cluster: Cluster, spec: JobSpec, at: datetime) -> tuple[str, ...]:
    """The GPU types that such a job may get and that have no price at `at`."""
    prices = list_at(cluster.credits.prices, at)
    types = may_get(market_of(cluster), spec.gpu_types)
    return tuple(t for t in types if prices is None or rate_of(prices, t, spec.priority) is None)
