"""A cluster whose jobs are paid for, with leaders that race, lose answers and crash, over a log that is real or in memory."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar

from events.accounts import Account, AccountsSet
from events.base import AccountId, AskId, Event, GpuUuid, JobId, NodeEpoch, NodeId, Position, Recorded, RunId, TeamId
from events.head import LeadershipTaken, LogFounded
from events.job import JobCancelRequested, JobPlaced, JobSpec, JobSubmitted, NodeShare
from events.log.port import Conflict, Log
from events.node import (
    CheckpointSaved,
    EndReason,
    GpusFoundClean,
    GpusReleased,
    NodeJoined,
    ShareEnded,
    ShareStarted,
)
from events.policy import Bearer, ChargeFrom, Overrun, PolicySet, Waived
from events.prices import GpuPrice, PriceList, PricesSet
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.evolve import evolve
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.control.round import decide_all
from tests.simulation.tally import Tally

CREDIT: Final = 1_000_000
NODES: Final = ("n1", "n2", "n3")
GPUS: Final = 4  # of each
OWN, SHARED = AccountId("own"), AccountId("shared")
T = TypeVar("T")

Append = tuple[list[Event], Position]  # what was decided, and on which head


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What it returns: a log in memory waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # what the coroutine returns
    raise AssertionError("it waits")


class Plane:
    """A control plane, step by step: what it folded, and what it saved of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cluster = Cluster()
        self.saved = b""
        self.unsent: list[Append] = []  # appends that were given up, and may still arrive


class Bank:
    """The log, two control planes, a reading of it that knows neither, and everybody else. `now` is when things happen."""

    def __init__(self, log: Log, now: Callable[[], datetime]) -> None:
        self.log = log
        self.now = now
        self.tally = Tally()
        self.records: list[Recorded] = []
        self.planes = {name: Plane(name) for name in "xy"}
        self.jobs: list[JobSubmitted] = []
        self.placed: list[JobPlaced] = []
        self.lives: list[tuple[NodeId, NodeEpoch]] = []
        self.over: set[tuple[RunId, NodeId]] = set()
        self.silent: set[NodeId] = set()
        self.conflicts = 0

    async def begin(self, *, founded: bool = False) -> None:
        """There are nodes, accounts, prices, and a leader."""
        if not founded:
            await self.log.append([LogFounded(at=self.now(), log_id="bank", cell="c")], after=Position(0))
        await self.read()
        await self.set_accounts(0)
        await self.set_prices(0)
        await self.set_policy(10)  # the defaults, but for instalments of ten minutes
        for number in range(len(NODES)):
            await self.join(number)
        await self.grant(0, 40 * CREDIT)
        await self.round("x")
        await self.round("x")

    # Reading

    async def read(self) -> None:
        """All that is in the log is read; the tally asserts what it must."""
        for recorded in await self._after(self.tally.position):
            self.records.append(recorded)
            self.tally.read(recorded)
            if isinstance(recorded.event, JobPlaced):
                self.placed.append(recorded.event)

    async def _after(self, position: Position) -> list[Recorded]:
        end = await self.log.end()
        found: list[Recorded] = []
        if position >= end:
            return found
        since = next(
            (r.at for r in reversed(self.records) if r.position == position), datetime.fromtimestamp(0).astimezone()
        )
        async with aclosing(self.log.follow(position, since=since)) as stretches:  # type: ignore[type-var]
            async for stretch in stretches:
                found += stretch
                if found and found[-1].position >= end:
                    break
        return found

    @property
    def leader(self) -> str:
        """The plane that the log names; the first, before there is one."""
        taken = (r.event for r in reversed(self.records) if isinstance(r.event, LeadershipTaken))
        return next((e.instance for e in taken), "x")

    async def catch_up(self, name: str) -> Cluster:
        """A plane has folded all there is."""
        plane = self.planes[name]
        for recorded in await self._after(plane.cluster.position):
            plane.cluster = evolve(plane.cluster, recorded)
        return plane.cluster

    async def compare(self) -> None:
        """Whoever folds the log, however often it began anew, has the same; and the accounts are those of the tally."""
        await self.read()
        folds = [dump(await self.catch_up(name)) for name in self.planes]
        assert folds[0] == folds[1]
        cluster = self.planes["x"].cluster
        assert not cluster.unread
        self.tally.assert_folded(cluster)

    # Control planes

    async def decide(self, name: str) -> Append:
        """What a plane would write now."""
        cluster = await self.catch_up(name)
        at = max(self.now(), cluster.at or self.now())
        if cluster.leader != name:
            return [LeadershipTaken(at=at, instance=name, version="")], cluster.head
        silent = dict.fromkeys(sorted(self.silent), 100.0)
        return decide_all(cluster, Tick(at=at, position=cluster.position, silent=silent)), cluster.head

    async def send(self, append: Append) -> bool:
        """Whether it was written: it is all in the log, or nothing of it."""
        events, head = append
        if not events:
            return False
        try:
            await self.log.append(events, after=head)
        except Conflict:
            self.conflicts += 1
            return False
        await self.read()
        return True

    async def round(self, name: str = "", between: Callable[[], Awaitable[None]] | None = None) -> bool:
        """A plane, the leader if none is named, decides, and something may happen before that is written. Whether it was."""
        append = await self.decide(name or self.leader)
        if between is not None:
            await between()
        return await self.send(append)

    async def race(self) -> None:
        """Both decide on the same head: at most one is heard."""
        appends = [await self.decide(name) for name in self.planes]
        written = [await self.send(append) for append in appends]
        assert sum(written) <= 1

    async def lose(self, name: str) -> None:
        """A round is given up: it may arrive later, or never."""
        append = await self.decide(name)
        if append[0]:
            self.planes[name].unsent.append(append)

    async def arrive(self, name: str) -> None:
        """What was given up arrives after all, twice: the head lets it in once, if at all."""
        plane = self.planes[name]
        if plane.unsent:
            append = plane.unsent.pop(0)
            await self.send(append)
            assert not await self.send(append)

    def save(self, name: str) -> None:
        """A plane saves what it folded."""
        self.planes[name].saved = dump(self.planes[name].cluster)

    async def crash(self, name: str) -> None:
        """A plane starts anew, from what it saved, or from nothing; part of the log is folded again."""
        plane = self.planes[name]
        plane.cluster = (load(plane.saved, log_id=plane.cluster.log_id) if plane.saved else None) or Cluster()
        await self.catch_up(name)

    # Operators

    async def set_accounts(self, kind: int) -> None:
        """The documents of accounts differ in what may be overdrawn, what is closed, and up to when."""
        overdrafts: tuple[int | None, ...] = (0, 5 * CREDIT, None)
        month = f"{self.now() - timedelta(days=20):%Y-%m}"
        through = max(self.tally.month, month) if kind % 4 == 1 else self.tally.month
        await self.log.record(
            [
                AccountsSet(
                    at=self.now(),
                    accounts=(
                        Account(
                            name=OWN,
                            queues=(TeamId("t"),),
                            overdraft_micro=overdrafts[kind % 3],
                            closed=kind % 11 == 10,
                        ),
                        Account(name=SHARED, queues=(TeamId("t"), TeamId("u"))),
                    ),
                    closed_through=through,
                )
            ]
        )
        await self.read()

    async def set_prices(self, kind: int) -> None:
        """Prices change."""
        prices = (GpuPrice("h100", (CREDIT, 2 * CREDIT, 333_333, 0)[kind % 4]),)
        await self.log.record(
            [PricesSet(at=self.now(), lists=(PriceList(prices=prices, step_s=(0, 1, 60)[kind % 3]),))]
        )

    async def set_policy(self, kind: int) -> None:
        """Who bears what changes."""
        waived = list(Waived)[kind % 3]
        await self.log.record(
            [
                PolicySet(
                    at=self.now(),
                    instalment_s=600,
                    uncovered=list(Bearer)[kind % 2],
                    charge_from=list(ChargeFrom)[kind // 2 % 2],
                    waived_failed=waived,
                    waived_preempted=waived,
                    overrun=list(Overrun)[kind // 5 % 2],
                    min_runtime_s=0,
                    lost_most_s=90.0,  # whatever runs there
                    silent_percent=0,
                    start_within_s=0,
                )
            ]
        )

    async def grant(self, which: int, micro: int) -> None:
        """An operator grants credits; under a key that is taken, nothing is written."""
        account = (OWN, SHARED)[which % 2]
        await self._ask(GrantAsked(**self._of_ask(account, micro), amount_micro=micro))

    async def adjust(self, which: int, micro: int) -> None:
        """An operator corrects a balance."""
        account = (OWN, SHARED)[which % 2]
        await self._ask(AdjustmentAsked(**self._of_ask(account, micro), amount_micro=micro))

    async def refund(self, which: int, share: int) -> None:
        """An operator gives back what a run was charged, in part, in whole, or more than that."""
        if self.tally.commits:
            (account, entry), commit = sorted(self.tally.commits.items())[which % len(self.tally.commits)]
            micro = max(1, commit.amount_micro * share // 2)
            of: dict[str, Any] = {"refunds": 1, "refunds_entry": entry, "refunds_micro": commit.amount_micro}
            await self._ask(AdjustmentAsked(**self._of_ask(AccountId(account), micro), amount_micro=micro, **of))

    def _of_ask(self, account: AccountId, micro: int) -> dict[str, Any]:
        ask_id = AskId(f"a{len(self.tally.asks) + 1:04}")
        return {"at": self.now(), "account": account, "ask_id": ask_id, "key": ask_id, "request_hash": str(micro)}

    async def _ask(self, ask: GrantAsked | AdjustmentAsked) -> None:
        """It is asked twice: a key is taken once."""
        await self.log.record([ask])
        try:
            await self.log.record([ask])
        except Conflict:
            self.conflicts += 1
        else:
            raise AssertionError("a key was taken twice")
        await self.read()

    # Users

    async def submit(self, kind: int) -> None:
        """Jobs of teams with and without an account; with a runtime and without; of which some may be smaller."""
        number = len(self.jobs)
        gpus = (1, 2, 4, 8)[kind % 4]
        spec = JobSpec(
            name=f"j{number}",
            command=("true",),
            gpus=gpus,
            max_runtime_s=(0, 600, 7_200)[kind % 3],
            min_gpus=(0, 0, 1)[kind // 2 % 3] if gpus > 1 else 0,
            account=("", "", "shared")[kind // 5 % 3],
        )
        team = TeamId("tuv"[kind // 3 % 3])
        job = JobSubmitted(
            at=self.now(), team=team, job_id=JobId(f"j{number}"), spec=spec, key=f"k{number}", request_hash="h"
        )
        self.jobs.append(job)
        await self.log.record([job])

    async def cancel(self, which: int) -> None:
        """A user no longer wants a job."""
        if self.jobs:
            job = self.jobs[which % len(self.jobs)]
            await self.log.record([JobCancelRequested(at=self.now(), team=job.team, job_id=job.job_id)])

    # Nodes

    async def join(self, which: int) -> None:
        """A node joins, or joins anew: what ran there is over."""
        node_id = NodeId(NODES[which % len(NODES)])
        uuids = tuple(GpuUuid(f"{node_id}-{slot}") for slot in range(GPUS))
        where: dict[str, Any] = {"address": "127.0.0.1", "port_base": 20_000, "gpu_type": "h100"}
        joined = NodeJoined(at=self.now(), node_id=node_id, boot_id="b", instance="i", gpu_uuids=uuids, **where)
        epoch = NodeEpoch(await self.log.record([joined]))
        await self.log.record([GpusFoundClean(at=self.now(), node_id=node_id, node_epoch=epoch, gpu_uuids=uuids)])
        self.silent.discard(node_id)
        self.over |= {(run.run_id, node_id) for run in self.placed}

    async def start(self, which: int) -> None:
        """A node says that its ranks have started."""
        if (found := self._share(which)) is not None:
            run_id, share = found
            await self.log.record([ShareStarted(**self._of(run_id, share))])

    async def start_all(self, which: int) -> None:
        """All nodes of a run say so."""
        if (run := self._run(which)) is not None:
            await self.log.record([ShareStarted(**self._of(run.run_id, share)) for share in run.shares])

    async def checkpoint(self, which: int) -> None:
        """A run has saved its work."""
        if (found := self._share(which)) is not None:
            run_id, share = found
            await self.log.record([CheckpointSaved(**self._of(run_id, share), number=which % 1_000)])

    async def end(self, which: int, code: int) -> None:
        """A node says how its ranks ended, and that their GPUs are free: also of a run that was settled long ago."""
        if (found := self._share(which)) is not None:
            await self._end(*found, code)

    async def end_all(self, which: int, code: int) -> None:
        """All nodes of a run say so."""
        if (run := self._run(which)) is not None:
            for share in run.shares:
                await self._end(run.run_id, share, code)

    async def _end(self, run_id: RunId, share: NodeShare, code: int) -> None:
        ids = self._of(run_id, share)
        reason = EndReason.EXITED if code < 2 else EndReason.STOPPED
        self.over.add((run_id, share.node_id))
        ended = ShareEnded(**ids, reason=reason, exit_code=code)
        await self.log.record([ended, GpusReleased(**ids, slots=share.slots)])

    def _of(self, run_id: RunId, share: NodeShare) -> dict[str, Any]:
        return {"at": self.now(), "node_id": share.node_id, "node_epoch": share.node_epoch, "run_id": run_id}

    def _run(self, which: int) -> JobPlaced | None:
        """Some run, mostly a late one."""
        late = self.placed[-6:] if which % 7 else self.placed
        return late[which % len(late)] if late else None

    def _share(self, which: int) -> tuple[RunId, NodeShare] | None:
        run = self._run(which)
        return (run.run_id, run.shares[which // 2 % len(run.shares)]) if run is not None else None

    async def silence(self, which: int) -> None:
        """A node is not heard any more, or again: one that was lost joins anew."""
        node_id = NodeId(NODES[which % len(NODES)])
        if node_id in self.silent:
            await self.join(which)
        else:
            self.silent.add(node_id)

    # The end

    async def settle(self, wait: Callable[[], None]) -> None:
        """All jobs are cancelled, every agent says how it ended, and rounds go on until nothing is left to decide."""
        for job in self.jobs:
            await self.log.record([JobCancelRequested(at=self.now(), team=job.team, job_id=job.job_id)])
        for which in range(len(NODES)):
            await self.join(which)
        for _ in range(60):
            cluster = await self.catch_up("x")
            for run in [run for run in self.placed if run.run_id in cluster.runs]:
                for share in run.shares:
                    await self._end(run.run_id, share, 0)
            wait()
            if not await self.round() and not (await self.catch_up("x")).jobs:
                break
        await self.compare()
        cluster = self.planes["x"].cluster
        assert not cluster.jobs
        assert not cluster.credits.bills
        self.tally.assert_settled()


def walk(bank: Bank, random: Random) -> Coroutine[Any, Any, Any]:
    """One random step."""
    which, kind = random.randrange(1_000), random.randrange(1_000)
    name = random.choice("xy")
    steps: Sequence[tuple[int, Callable[[], Coroutine[Any, Any, Any]]]] = (
        (6, lambda: bank.submit(kind)),
        (12, bank.round),
        (1, lambda: bank.round(name)),
        (3, lambda: bank.round("", lambda: bank.end_all(which, 0))),
        (1, bank.race),
        (1, lambda: bank.lose(name)),
        (1, lambda: bank.arrive(name)),
        (1, lambda: bank.crash(name)),
        (6, lambda: bank.start_all(which)),
        (2, lambda: bank.checkpoint(which)),
        (5, lambda: bank.end_all(which, kind % 2)),
        (1, lambda: bank.cancel(which)),
        (1, lambda: bank.grant(which, kind * 10_000)),
        (1, lambda: bank.adjust(which, (kind - 700) * 10_000)),
        (1, lambda: bank.refund(which, kind % 4)),
        (1, lambda: bank.set_policy(kind)),
        (1, lambda: bank.set_prices(kind)),
        (1, lambda: bank.set_accounts(kind)),
        (1, lambda: bank.silence(which)),
    )
    (step,) = random.choices([step for _, step in steps], [weight for weight, _ in steps])
    return step()
