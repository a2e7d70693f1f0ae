"""The auditor's reading of reservations, held to small logs: good ones, and each law broken once, with nothing else amiss."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from events.accounts import Account
from events.base import AccountId, RunId, TeamId
from events.credit import CreditRenewed, CreditReserved, CreditsRunningOut, Rate
from events.job import JobAdmitted, Priority, RunStopping, StopCause
from events.policy import ChargeFrom, Overrun
from events.prices import ClassFactor, GpuPrice, PriceList
from events.queues import Queue, QueuesSet
from projections.cluster.audit.audit import audit
from tests.projections.cluster.audit.auditing import AT, TEAM, admitted, laws
from tests.projections.cluster.audit.crediting import ALPHA, CREDIT, NANO, PER_GPU_S, Paid, plus

BETA: Final = AccountId("beta")
INSTALMENT_S: Final = 100


def instalments(book: Paid, name: str = "long") -> Any:
    """A job that declares no runtime runs on its first instalment."""
    book.policy(instalment_s=INSTALMENT_S)
    job_id = book.submit(name, 2)
    book.decide(admitted(job_id), book.reserved(job_id, covers_s=INSTALMENT_S, declared=False))
    book.place(job_id)
    return job_id


def renew(book: Paid, job_id: Any, seconds: int = INSTALMENT_S, **said: Any) -> None:
    """More is reserved for it."""
    more = {"amount_micro": 2 * seconds * PER_GPU_S, "covers_s": seconds} | said
    book.decide(book.entry(CreditRenewed, **book.of(job_id), **more))


def running_out(book: Paid, job_id: Any, after_s: int) -> None:
    """Its account cannot pay for it beyond that."""
    book.decide(book.entry(CreditsRunningOut, **book.of(job_id), until=book.now + timedelta(seconds=after_s)))


def queues(book: Paid, *queues: Queue) -> None:
    """Teams stand in these."""
    book.add(QueuesSet(at=book.now, queues=queues))


def test_good_logs_of_reservations_break_no_law() -> None:
    """Classes and lists from a time on; payers by queue above, by name; jobs that nobody pays for; instalments."""
    book = Paid()
    in_force = PriceList(
        effective_from=AT + timedelta(seconds=10),
        prices=(GpuPrice("a100", 5), GpuPrice("h100", 1_800 * PER_GPU_S)),
        factors=(ClassFactor(Priority.URGENT, 2_000),),
        step_s=60,
    )
    book.prices = book.price(
        PriceList(prices=(GpuPrice("", 1),)), in_force, PriceList(effective_from=AT + timedelta(days=1))
    )
    book.accounts(Account(name=BETA), Account(name=ALPHA, queues=(TeamId("org"),)))
    queues(book, Queue(name=TeamId("org")), Queue(name=TEAM, parent="org"), Queue(name=TeamId("free")))
    book.wait(10)
    urgent = book.submit("urgent", 2, max_runtime_s=90, priority=Priority.URGENT, account="alpha")
    list_of: dict[str, Any] = {"step_s": 60, "effective_from": in_force.effective_from}
    said = {"covers_s": 90, "amount_micro": 2 * 120 * PER_GPU_S, **list_of}
    two = (replace(admitted(urgent), at=book.now), book.reserved(urgent, **said))
    book.decide(*two)
    book.place(urgent)
    free = book.submit("free", 1)
    book.records[-1] = replace(book.records[-1], event=replace(book.records[-1].event, team=TeamId("free")))
    book.decide(replace(admitted(free), team=TeamId("free")))
    assert audit(book.records) == []

    book = Paid()
    job_id = instalments(book)
    renew(book, job_id)
    running_out(book, job_id, 2 * INSTALMENT_S)
    renew(book, job_id, seconds=7)
    running_out(book, job_id, 2 * INSTALMENT_S + 7)
    assert audit(book.records) == []

    book = Paid(granted=0)
    book.accounts(Account(name=ALPHA, queues=(TEAM,), overdraft_micro=200_000))
    book.admit()
    book.accounts(Account(name=ALPHA, queues=(TEAM,), overdraft_micro=None))
    book.admit("beyond")
    assert audit(book.records) == []

    book = Paid()
    book.policy(overrun=Overrun.EXTEND)
    job_id = book.admit()
    book.place(job_id)
    renew(book, job_id)
    assert audit(book.records) == []


def _admitted_and_nothing_reserved(book: Paid) -> None:
    book.decide(admitted(book.submit("job", 2)))


def _admitted_among_others(book: Paid) -> None:
    one, two = book.submit("one", 1, max_runtime_s=100), book.submit("two", 1, max_runtime_s=100)
    book.decide(admitted(one), admitted(two), book.reserved(two, gpus=1))


def _account_closed(book: Paid) -> None:
    book.accounts(Account(name=ALPHA, queues=(TEAM,), closed=True))
    book.decide(admitted(book.submit("job", 2)))


def _account_of_others(book: Paid) -> None:
    book.accounts(Account(name=ALPHA, queues=(TEAM,)), Account(name=BETA, queues=(TeamId("others"),)))
    book.decide(admitted(book.submit("job", 2, account="beta")))


def _reserved_for_a_job_that_was_admitted_before(book: Paid) -> None:
    book.accounts()
    job_id = book.submit("job", 2, max_runtime_s=100)
    book.decide(admitted(job_id))
    book.decide(book.reserved(job_id))


def _another_pays(book: Paid) -> None:
    book.accounts(Account(name=BETA, queues=(TEAM,)), Account(name=ALPHA, queues=(TEAM,)))
    book.admit()


def _nobody_pays(book: Paid) -> None:
    book.accounts(Account(name=ALPHA, queues=(TeamId("others"),)))
    book.admit()


def _of_another_team(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, team=TeamId("others"))


def _for_another_run(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, run_id=RunId("job-2"))


def _more_than_there_is(book: Paid) -> None:
    book.admit("large", runtime_s=50_001)


def _more_than_there_is_on_the_second(book: Paid) -> None:
    book.admit("one", runtime_s=50_000)
    book.admit("two", runtime_s=1)


def _below_the_overdraft_that_held_when_it_was_decided(book: Paid) -> None:
    job_id = book.submit("job", 2, max_runtime_s=60_000)
    decided_at = book.records[-1].position
    book.accounts(Account(name=ALPHA, queues=(TEAM,), overdraft_micro=100 * CREDIT))
    book.decide(admitted(job_id), book.reserved(job_id, covers_s=60_000), decided_at=decided_at)


def _by_an_older_document(book: Paid) -> None:
    older = book.prices
    book.prices = book.price(PriceList(prices=(GpuPrice("", 3_600 * PER_GPU_S), GpuPrice("other", 1))))
    book.admit()
    book.change(CreditReserved, prices=older)


def _by_a_list_that_holds_later(book: Paid) -> None:
    later = PriceList(effective_from=AT + timedelta(days=1), prices=(GpuPrice("h100", 3_600 * PER_GPU_S),))
    book.prices = book.price(PriceList(prices=(GpuPrice("", 1),)), later)
    book.admit()
    book.change(CreditReserved, effective_from=later.effective_from)


def _in_other_steps(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, step_s=2)


def _at_another_rate(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, rates=(Rate("h100", NANO), Rate("a100", NANO - 1)))


def _without_the_factor_of_its_class(book: Paid) -> None:
    prices, double = (GpuPrice("", 3_600 * PER_GPU_S),), (ClassFactor(Priority.NORMAL, 2_000),)
    book.prices = book.price(PriceList(prices=prices, factors=double))
    book.admit()


def _of_a_type_that_it_does_not_accept(book: Paid) -> None:
    book.admit(gpu_types=("h100",))
    book.change(CreditReserved, rates=(Rate("h100", NANO), Rate("a100", NANO)))


def _one_unit_less(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, plus("amount_micro", -1))


def _for_fewer_gpus(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, gpus=1, amount_micro=100 * PER_GPU_S)


def _for_less_time(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, covers_s=99, amount_micro=2 * 99 * PER_GPU_S)


def _from_another_moment(book: Paid) -> None:
    book.admit()
    book.change(CreditReserved, charge_from=ChargeFrom.STARTED)


def _placed_at_old_prices(book: Paid) -> None:
    job_id = book.admit()
    book.price(PriceList(prices=(GpuPrice("", 3_600 * PER_GPU_S), GpuPrice("other", 1))))
    book.place(job_id)


def _placed_at_prices_that_hold_no_longer(book: Paid) -> None:
    prices = (GpuPrice("", 3_600 * PER_GPU_S),)
    book.price(PriceList(prices=prices), PriceList(effective_from=AT + timedelta(seconds=9), prices=prices))
    job_id = book.admit()
    book.wait(9)
    book.place(job_id)


def _renewed_and_nothing_is_reserved(book: Paid) -> None:
    job_id = book.settled()
    renew(book, job_id)


def _renewed_under_another_reservation(book: Paid) -> None:
    job_id = instalments(book)
    renew(book, job_id)
    book.change(CreditRenewed, reservation=9)


def _renewed_beyond_a_declared_runtime(book: Paid) -> None:
    job_id = book.admit()
    book.place(job_id)
    renew(book, job_id)


def _renewed_while_it_stops(book: Paid) -> None:
    job_id = instalments(book)
    book.decide(RunStopping(at=AT, team=TEAM, job_id=job_id, run_id=RunId("long-1"), cause=StopCause.CREDITS))
    renew(book, job_id)


def _renewed_before_it_is_placed(book: Paid) -> None:
    book.policy(instalment_s=INSTALMENT_S)
    job_id = book.submit("long", 2)
    book.decide(admitted(job_id), book.reserved(job_id, covers_s=INSTALMENT_S, declared=False))
    renew(book, job_id, amount_micro=0)


def _renewed_for_another_amount(book: Paid) -> None:
    renew(book, instalments(book), amount_micro=2 * INSTALMENT_S * PER_GPU_S + 1)


def _renewed_with_what_there_is_not(book: Paid) -> None:
    renew(book, instalments(book), seconds=50_000)


def _runs_out_at_another_time(book: Paid) -> None:
    running_out(book, instalments(book), INSTALMENT_S - 1)


def _runs_out_after_the_end(book: Paid) -> None:
    running_out(book, book.settled(), 100)


PLANTED: Final[list[tuple[Callable[[Paid], None], str]]] = [
    (_admitted_and_nothing_reserved, "admitted when paid for"),
    (_admitted_among_others, "admitted when paid for"),
    (_account_closed, "admitted when paid for"),
    (_account_of_others, "admitted when paid for"),
    (_reserved_for_a_job_that_was_admitted_before, "reserved with its admission"),
    (_another_pays, "paid by its payer"),
    (_nobody_pays, "paid by its payer"),
    (_of_another_team, "paid by its payer"),
    (_for_another_run, "reserved once"),
    (_more_than_there_is, "within what there is"),
    (_more_than_there_is_on_the_second, "within what there is"),
    (_below_the_overdraft_that_held_when_it_was_decided, "within what there is"),
    (_by_an_older_document, "priced as the list says"),
    (_by_a_list_that_holds_later, "priced as the list says"),
    (_in_other_steps, "priced as the list says"),
    (_at_another_rate, "priced as the list says"),
    (_without_the_factor_of_its_class, "priced as the list says"),
    (_of_a_type_that_it_does_not_accept, "priced as the list says"),
    (_one_unit_less, "priced as the list says"),
    (_for_fewer_gpus, "priced as the list says"),
    (_for_less_time, "priced as the list says"),
    (_from_another_moment, "priced as the list says"),
    (_placed_at_old_prices, "placed at the prices in force"),
    (_placed_at_prices_that_hold_no_longer, "placed at the prices in force"),
    (_renewed_and_nothing_is_reserved, "of an open reservation"),
    (_renewed_under_another_reservation, "of an open reservation"),
    (_renewed_beyond_a_declared_runtime, "renewed while it runs on"),
    (_renewed_while_it_stops, "renewed while it runs on"),
    (_renewed_before_it_is_placed, "renewed while it runs on"),
    (_renewed_for_another_amount, "priced as the list says"),
    (_renewed_with_what_there_is_not, "within what there is"),
    (_runs_out_at_another_time, "lasts as long as it lasts"),
    (_runs_out_after_the_end, "of an open reservation"),
]


@pytest.mark.parametrize(("plant", "law"), PLANTED, ids=[plant.__name__.strip("_") for plant, _ in PLANTED])
def test_a_planted_violation_is_found_and_nothing_else(plant: Callable[[Paid], None], law: str) -> None:
    """Exactly the law that is broken is named, with the account, or the job, and the event."""
    book = Paid()
    plant(book)

    findings = audit(book.records)
    assert {finding.law for finding in findings} == {law}, findings


def test_an_admission_that_the_log_breaks_off_behind_is_no_violation() -> None:
    """What is reserved for it may be what was not read yet."""
    book = Paid()
    job_id = book.submit("job", 2)
    book.decide(admitted(job_id), events=2)

    assert isinstance(book.records[-1].event, JobAdmitted)
    assert laws(book.records) == set()


def test_a_job_that_names_an_account_where_none_pays_for_anybody_is_not_admitted() -> None:
    """It asked to be charged, and there is nothing to charge."""
    book = Paid()
    book.accounts()
    book.decide(admitted(book.submit("free", 2)))
    assert laws(book.records) == set()

    book.decide(admitted(book.submit("named", 2, account="alpha")))
    assert laws(book.records) == {"admitted when paid for"}
