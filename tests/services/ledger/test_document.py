"""The numbers of docs/credits.md, each by real rounds; and that the document says them."""

import re
from pathlib import Path
from typing import Any

import pytest

from events.accounts import Account
from events.base import JobId, NodeId, TeamId
from events.credit import (
    AdjustCause,
    AskRefused,
    CreditAdjusted,
    CreditCommitted,
    CreditRefunded,
    CreditRenewed,
    CreditsRunningOut,
    RefundCause,
    UsageRecorded,
)
from events.job import AdmissionWithdrawn, HoldCode, RunStopping, StopCause
from events.node import EndReason
from events.policy import Bearer, Overrun
from projections.tables.credit_entry import SIGNS, EntryKind
from tests.clusters import BEGIN
from tests.purses import CREDIT, A, Purse
from tests.services.ledger.test_settle import save

DOCUMENT = re.sub(r"\s+", " ", Path("docs/credits.md").read_text("utf-8"))
N1 = NodeId("n1")
MINUTE, HOUR = 60, 3_600


def says(*words: str) -> None:
    """The document has these words."""
    for word in words:
        assert word in DOCUMENT, word


def runs(world: Purse, gpus: int, name: str = "job", **spec: Any) -> JobId:
    """The job is admitted, placed and started by rounds."""
    job = world.submit(name, gpus, **spec)
    world.rounds()
    world.start(job)
    world.rounds()
    return job


def ends(world: Purse, job: JobId, **said: Any) -> None:
    """Its ranks end, its GPUs come back, and rounds say what that means."""
    world.end(job, **said)
    world.release(job)
    world.rounds()
    world.assert_sound()


def passes(world: Purse, seconds: float) -> None:
    """Time passes, with rounds in every minute."""
    until = world.at.timestamp() + seconds
    while (left := until - world.at.timestamp()) > 0:
        world.wait(min(left, 10.0))
        world.rounds()


def amounts(world: Purse, kind: type[Any], **said: Any) -> list[float]:
    """What entries of a kind say, in credits."""
    entries: list[Any] = [entry for entry in world.entries() if isinstance(entry, kind)]
    return [e.amount_micro / CREDIT for e in entries if all(getattr(e, key) == value for key, value in said.items())]


def left(world: Purse) -> float:
    """What is available."""
    return world.book().balance / CREDIT


def test_one_job_from_beginning_to_end() -> None:
    """192 of 1,000 reserved, 80 committed, 112 refunded, 920 left; and what of it is given back later."""
    world = Purse({"n1": 8})
    job = runs(world, 8, max_runtime_s=24 * HOUR)
    assert (world.book().reserved / CREDIT, left(world)) == (192, 808)
    for _ in range(10):
        world.wait(HOUR)
        world.rounds()
    ends(world, job)

    assert amounts(world, UsageRecorded) == [8] * 10
    assert (amounts(world, CreditCommitted), amounts(world, CreditRefunded, cause=RefundCause.UNUSED)) == ([80], [112])
    assert left(world) == 920
    says("| `CreditReserved` | 192 | 808 |", "| `CreditCommitted` | 80 | 808 |", "cause `unused` | 112 | 920 |")
    entry = next(e.entry for e in world.entries() if isinstance(e, CreditCommitted))
    of = {"refunds": 1, "refunds_entry": entry, "refunds_micro": 80 * CREDIT}
    world.adjust(30 * CREDIT, **of)
    world.rounds()
    assert left(world) == 950
    world.adjust(50 * CREDIT + 1, **of)
    world.rounds()
    assert amounts(world, CreditAdjusted, cause=AdjustCause.REFUND) == [30]
    assert [e.code for e in world.entries() if isinstance(e, AskRefused)] == ["beyond_commit"]
    says("of the 80 above first 30, which makes 950 available, then at most 50")


def test_a_job_that_cannot_be_paid_for_waits() -> None:
    """192 needed, 150 there; and one behind it goes on."""
    world = Purse({"n1": 8}, granted=150)
    big = world.submit("big", 8, max_runtime_s=24 * HOUR)
    small = world.submit("small", 8, max_runtime_s=HOUR)
    world.rounds()

    assert world.cluster.jobs[big].hold is HoldCode.CREDITS
    assert world.run(small) is not None
    says("it needs 192, has 150 and is short 42")


def test_instalments() -> None:
    """Three of them for two hours and a half."""
    world = Purse({"n1": 8})
    job = runs(world, 8)
    assert world.book().reserved == 8 * CREDIT
    passes(world, 49 * MINUTE)
    assert amounts(world, CreditRenewed) == []
    passes(world, MINUTE)
    assert amounts(world, CreditRenewed) == [8]
    passes(world, 100 * MINUTE)
    ends(world, job)

    assert amounts(world, CreditRenewed) == [8, 8]
    assert (amounts(world, CreditCommitted), amounts(world, CreditRefunded)) == ([20], [4])
    says("three instalments, 24 credits: 20 are committed, 4 refunded")


@pytest.mark.parametrize("granted", [False, True])
def test_running_out(granted: bool) -> None:
    """With 20 credits; told to stop at 2:29:48, unless there are more by then."""
    world = Purse({"n1": 8}, granted=20)
    job = runs(world, 8)
    passes(world, 2 * HOUR)
    (told,) = (e for e in world.entries() if isinstance(e, CreditsRunningOut))
    assert (amounts(world, CreditRenewed), (told.until - BEGIN).total_seconds()) == ([8, 4], 150 * MINUTE)
    if granted:
        world.grant(100 * CREDIT)
    passes(world, 30 * MINUTE - 13)
    assert not [r for r in world.records if isinstance(r.event, RunStopping)]
    passes(world, 1)
    stopping = [r for r in world.records if isinstance(r.event, RunStopping)]
    assert [(r.event.cause, (r.at - BEGIN).total_seconds()) for r in stopping if isinstance(r.event, RunStopping)] == (
        [] if granted else [(StopCause.CREDITS, 150 * MINUTE - 12)]
    )
    if not granted:
        world.wait(7)
        ends(world, job, code=143, reason=EndReason.STOPPED)
        assert amounts(world, CreditCommitted) == [19.988889]
        assert world.cluster.jobs[job].hold is HoldCode.CREDITS
        assert world.cluster.jobs[job].failures_infrastructure == 0
    says("After two instalments 4 are left: they are reserved too, which covers 30 minutes more", "at 2:29:48")


def test_what_had_to_make_room() -> None:
    """3 used, 2 of them saved."""
    world = Purse({"n1": 2})
    job = runs(world, 2, max_runtime_s=10 * HOUR)
    world.wait(HOUR)
    save(world, job)
    world.wait(HOUR / 2)
    world.accounts()
    world.stopped(job, StopCause.PREEMPTED)
    ends(world, job, code=143, reason=EndReason.STOPPED)

    assert amounts(world, CreditCommitted) == [2]
    assert amounts(world, CreditRefunded, cause=RefundCause.PREEMPTED) == [1]
    says("of the 3 credits that they used 2 are committed, and 1 is refunded with the cause `preempted`")


def test_a_lost_node() -> None:
    """Heard last half an hour after the checkpoint."""
    world = Purse({"n1": 2})
    job = runs(world, 2, max_runtime_s=10 * HOUR)
    world.wait(HOUR)
    save(world, job)
    world.wait(HOUR / 2 + 90)
    world.round({N1: 90.0})
    world.round({N1: 90.0})

    assert amounts(world, CreditCommitted) == [2]
    assert amounts(world, CreditRefunded, cause=RefundCause.INTERRUPTED) == [1]
    says("used are 3 credits, 2 are committed, 1 is refunded with the cause `interrupted`")
    assert job in world.cluster.jobs
    world.assert_sound()


def test_cancelled_before_it_started() -> None:
    """8 of 8."""
    world = Purse({"n1": 8})
    first = runs(world, 8, name="first")
    waits = world.submit("waits", 8, max_runtime_s=HOUR)
    world.rounds()
    before = left(world)
    world.cancel(waits)
    world.rounds()

    assert amounts(world, CreditRefunded, cause=RefundCause.NEVER_PLACED) == [8]
    assert left(world) == before + 8
    assert world.run(first) is not None
    says("8 of 8, cause `never_placed`")


def test_an_elastic_gang() -> None:
    """Placed on 2 of 8."""
    world = Purse({"n1": 2, "n2": 2, "n3": 4})
    runs(world, 4, name="other")
    runs(world, 2, name="another")
    runs(world, 8, min_gpus=2, max_runtime_s=HOUR)

    assert amounts(world, CreditRefunded, cause=RefundCause.TRIMMED) == [6]
    says("of 8 credits 6, cause `trimmed`")


def test_a_price_that_changes() -> None:
    """A run keeps it; a job that waits has it reserved anew."""
    world = Purse({"n1": 4})
    job = runs(world, 4, max_runtime_s=HOUR)
    waits = world.submit("waits", 4, max_runtime_s=2 * HOUR)
    world.rounds()
    assert world.bill(waits).reserved_micro == 8 * CREDIT
    world.wait(HOUR / 2)
    world.prices(h100=2 * CREDIT)
    world.rounds()
    assert [r.event.job_id for r in world.records if isinstance(r.event, AdmissionWithdrawn)] == [waits]
    assert world.bill(waits).reserved_micro == 16 * CREDIT
    world.wait(HOUR / 2)
    ends(world, job)

    assert amounts(world, CreditCommitted) == [4]
    says("an hour at 1, though the price is 2 after half of it: 4 credits")


@pytest.mark.parametrize("bearer", list(Bearer))
def test_a_time_limit(bearer: Bearer) -> None:
    """Ten seconds of grace."""
    world = Purse({"n1": 8}, uncovered=bearer)
    job = runs(world, 8, max_runtime_s=HOUR)
    world.wait(HOUR + 10)
    ends(world, job, code=143, reason=EndReason.TIME_LIMIT)

    assert amounts(world, CreditCommitted) == [8]
    assert left(world) == (992 if bearer is Bearer.PROVIDER else 991.977778)
    says("used 8.022222 credits: 8 are committed, 0.022222 are uncovered")


def test_an_overrun() -> None:
    """An instalment more."""
    world = Purse({"n1": 8}, overrun=Overrun.EXTEND)
    job = runs(world, 8, max_runtime_s=HOUR)
    passes(world, HOUR + HOUR / 2)
    ends(world, job)

    assert amounts(world, CreditRenewed) == [8]
    assert (amounts(world, CreditCommitted), amounts(world, CreditRefunded)) == ([12], [4])
    says("had 16 reserved: 12 are committed, 4 refunded")


def test_hours_of_the_clock() -> None:
    """Three records."""
    world = Purse({"n1": 1})
    world.until("2026-01-01T10:15")
    job = runs(world, 1, max_runtime_s=10 * HOUR)
    passes(world, 135 * MINUTE)
    ends(world, job)

    assert amounts(world, UsageRecorded) == [0.75, 1, 0.5]
    says("has three: 0.75 for 10:15 to 11:00, 1 for the next hour, 0.5 for the rest")


def test_the_codes_of_refusals() -> None:
    """All that there are."""
    world = Purse()
    world.adjust(-1_001 * CREDIT)
    world.grant(1 << 60)
    world.accounts(Account(name=A, queues=(TeamId("t"),)))
    world.rounds()

    assert {e.code for e in world.entries() if isinstance(e, AskRefused)} == {"not_covered", "too_large"}
    says("`not_covered`, `beyond_commit`, `too_large`")


def test_every_word_of_a_statement_is_explained() -> None:
    """With what it does to the balance, in the order of the kinds."""
    rows = re.findall(r"\| ([a-z ]+) \| [^|]+ \| (rises or falls|rises|falls|stays)[^|]* \|", DOCUMENT)
    does = {0: "stays", 1: "rises", -1: "falls"}
    expected = {kind.value.replace("_", " "): does[SIGNS.get(kind, 0)] for kind in EntryKind}
    assert dict(rows) == expected | {"adjusted": "rises or falls"}
