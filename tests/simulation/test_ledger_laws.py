"""Laws of credits: what holds whatever is asked, run, lost, raced, written late or folded again."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from events.log.append import JetStreamLog
from events.log.memory import MemoryLog
from events.log.streams import StreamSettings, found
from projections.cluster.audit.audit import audit
from runtime.clock import SystemClock
from runtime.nats import Connection
from tests.simulation.bank import CREDIT, Bank, at_once, walk

WHICH = st.integers(0, 999)
NAME = st.sampled_from("xy")
TIMES = st.sampled_from((1, 30, 400, 1_900, 3_700, 20_000))


class Ledger(RuleBasedStateMachine):
    """Rounds over a log in memory; between any two steps a plane may lose an answer, be beaten, or start anew.

    The books of `Tally` assert at every record: double entry; nothing below what may be overdrawn; a reservation is
    resolved once and whole; a commit is no more than what is reserved, a refund no more than what was committed; a key
    is answered once; entries have no gap, and none comes after an account was closed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at = datetime(2026, 1, 31, 20, tzinfo=UTC)
        self.log = MemoryLog("c", lambda: self.at)
        self.bank = Bank(self.log, lambda: self.at)

    @initialize(kinds=st.lists(WHICH, min_size=1, max_size=4))
    def begin(self, kinds: list[int]) -> None:
        """There are nodes, accounts, prices, a leader, and jobs that run."""
        at_once(self.bank.begin())
        for kind in kinds:
            self.submit(kind)

    @rule(seconds=TIMES)
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.at += timedelta(seconds=seconds, microseconds=seconds % 7)

    @rule(kind=WHICH)
    def submit(self, kind: int) -> None:
        """A user wants a job, which may start at once; and sometimes does."""
        at_once(self.bank.submit(kind))
        if kind % 4:
            at_once(self.bank.round())
            at_once(self.bank.round())
            at_once(self.bank.start_all(-1))

    @rule(rounds=st.integers(1, 3), seconds=TIMES)
    def round(self, rounds: int, seconds: int) -> None:
        """The leader decides and is heard, time after time."""
        for _ in range(rounds):
            self.wait(seconds)
            at_once(self.bank.round())

    @rule(which=WHICH, code=st.sampled_from((0, 0, 0, 1)), what=st.sampled_from(("end", "start", "grant", "accounts")))
    def round_while_something_happens(self, which: int, code: int, what: str) -> None:
        """A fact, or what an operator says, lands between the decision and its commit."""
        bank = self.bank
        happens = {
            "end": lambda: bank.end_all(which, code),
            "start": lambda: bank.start_all(which),
            "grant": lambda: bank.grant(which, CREDIT),
            "accounts": lambda: bank.set_accounts(which),
        }
        at_once(bank.round("", happens[what]))

    @rule(name=NAME, kind=st.sampled_from(("lead", "race", "lose", "arrive", "save", "crash")))
    def disturb(self, name: str, kind: str) -> None:
        """Another plane leads; both decide on one head; an append is given up, or arrives after all; a plane starts anew."""
        match kind:
            case "lead":
                at_once(self.bank.round(name))
            case "race":
                at_once(self.bank.race())
            case "lose":
                at_once(self.bank.lose(name))
            case "arrive":
                at_once(self.bank.arrive(name))
            case "save":
                self.bank.save(name)
            case _:
                at_once(self.bank.crash(name))

    @rule(which=WHICH)
    def start(self, which: int) -> None:
        """Ranks of one node, or of all, have started."""
        at_once(self.bank.start_all(which) if which % 4 else self.bank.start(which))

    @rule(which=WHICH)
    def save_work(self, which: int) -> None:
        """A run has a checkpoint."""
        at_once(self.bank.checkpoint(which))

    @rule(which=WHICH, code=st.sampled_from((0, 0, 1, 143)))
    def end(self, which: int, code: int) -> None:
        """Ranks of one node, or of all, have ended; also of a run that was settled long ago."""
        at_once(self.bank.end_all(which, code) if which % 4 else self.bank.end(which, code))

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        """A user no longer wants a job."""
        at_once(self.bank.cancel(which))

    @rule(which=WHICH, micro=st.sampled_from((-(10**9) * CREDIT, -CREDIT, -1, 1, CREDIT, 50 * CREDIT)), share=WHICH)
    def ask(self, which: int, micro: int, share: int) -> None:
        """An operator gives credits, corrects a balance, or gives back what was charged."""
        if share % 3 == 0:
            at_once(self.bank.refund(which, share % 5))
        elif share % 3 == 1 and micro > 0:
            at_once(self.bank.grant(which, micro))
        else:
            at_once(self.bank.adjust(which, micro))

    @rule(kind=WHICH, what=st.sampled_from(("accounts", "prices", "policy")))
    def operate(self, kind: int, what: str) -> None:
        """Accounts, prices or who bears what change, also while jobs run."""
        set_it = {"accounts": self.bank.set_accounts, "prices": self.bank.set_prices, "policy": self.bank.set_policy}
        at_once(set_it[what](kind))

    @rule(which=WHICH)
    def silence(self, which: int) -> None:
        """A node is heard no more, or again."""
        at_once(self.bank.silence(which))

    @precondition(lambda self: len(self.bank.records) % 3 == 0)
    @invariant()
    def folds_agree(self) -> None:
        """A fold from a snapshot and the rest, one of all, and the books say the same."""
        if self.bank.records:
            at_once(self.bank.compare())

    def teardown(self) -> None:
        """Once all is over, all is settled; and the independent reading of the log finds nothing."""
        if self.bank.records:
            at_once(self.bank.settle(lambda: self.wait(400)))
            assert audit(self.bank.records) == []


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=60)


def strolled(seed: int, steps: int = 150) -> Bank:
    """A bank after so many random steps, and the end of all that it began."""
    at, random = [datetime(2026, 1, 31, 20, tzinfo=UTC)], Random(seed)
    bank = Bank(MemoryLog("c", lambda: at[0]), lambda: at[0])

    def wait() -> None:
        at[0] += timedelta(seconds=random.choice((1, 60, 500, 4_000)), microseconds=random.randrange(10**6))

    at_once(bank.begin())
    for _ in range(steps):
        wait()
        at_once(walk(bank, random))
    at_once(bank.settle(wait))
    return bank


def test_long_walks_come_to_rest_with_all_settled() -> None:
    """And hold what the laws are about: all kinds of entries, refusals, appends that were beaten."""
    kinds: Counter[str] = Counter()
    conflicts = months = 0
    for seed in range(12):
        bank = strolled(seed)
        kinds += bank.tally.kinds
        months += bool(bank.tally.month)
        conflicts += bank.conflicts
        assert audit(bank.records) == []

    often = {
        "CreditGranted",
        "CreditAdjusted",
        "AskRefused",
        "CreditReserved",
        "CreditRenewed",
        "CreditCommitted",
        "CreditRefunded",
        "UsageRecorded",
        "UsageUncovered",
    }
    rare = {"CreditsRunningOut", "AccountClosed"}
    assert {kind: kinds[kind] for kind in often if kinds[kind] < 10} == {}
    assert {kind: kinds[kind] for kind in rare if kinds[kind] < 2} == {}
    assert months > 2
    assert conflicts > 20


def test_the_same_steps_give_the_same_log() -> None:
    """To the byte."""
    one, other = strolled(3, 60), strolled(3, 60)

    assert [record.document for record in one.records] == [record.document for record in other.records]


@pytest.mark.parametrize("seed", [1, 2])
async def test_rounds_over_a_real_server_keep_the_same_laws(nats_connection: Connection, seed: int) -> None:
    """Its time is its own: it stores when it stores."""
    await found(nats_connection, StreamSettings())
    bank, random = Bank(JetStreamLog(nats_connection, source="bank"), SystemClock().now), Random(seed)
    await bank.begin(founded=True)
    for _ in range(120):
        await walk(bank, random)
    await bank.settle(lambda: None)

    assert audit(bank.records) == []
    assert bank.tally.committed
