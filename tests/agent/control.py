"""What an agent meets, as little of it as it takes: one that answers its reports and writes what it should run.

It is no fold: it keeps what was reported, gives positions, and says what a test wants, through a real server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from events.ask import Accepted, AgentReport, Answer, Refused, Report
from events.base import GpuUuid, JobId, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId, position_of
from events.desired import Desired, DesiredShare, Order
from events.job import JobSpec
from events.log.streams import StreamSettings, found
from events.node import GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from events.subjects import Subjects
from runtime.embedded.nats import EmbeddedNats
from runtime.nats import Connection, connect
from runtime.serve_requests import Served, serving
from runtime.settings import AgentSettings
from runtime.stored import stored
from tests.fixtures.waiting import until

NODE = NodeId("node-1")
R = TypeVar("R", bound=AgentReport)


class Control:
    """Answers the reports of one node, and writes its desired state."""

    def __init__(self, connection: Connection, node_id: NodeId = NODE) -> None:
        self._connection = connection
        self._node_id = node_id
        self._subjects = Subjects()
        self._sequence = 10
        self.reports: list[AgentReport] = []
        self.messages = 0
        self.refusal: Refused | None = None
        self.silent = False  # takes reports and does not answer
        self.shares: dict[RunId, DesiredShare] = {}
        self.joined: NodeJoined | None = None
        self.epoch = NodeEpoch(0)

    async def answer(self, _subject: str, payload: bytes) -> bytes:
        """Accepted, with the position of the last report."""
        report = msgspec.json.decode(payload, type=Report)
        self.messages += 1
        answer: Answer
        if self.refusal is not None:
            answer = self.refusal
        else:
            for one in report.reports:
                self.reports.append(one)
                self._sequence += 1
                if isinstance(one, NodeJoined):
                    self.joined, self.epoch = one, NodeEpoch(position_of(1, self._sequence))
            answer = Accepted(position=position_of(1, self._sequence))
        if self.silent:
            await asyncio.sleep(60)
        return msgspec.json.encode(answer)

    async def want(self, *shares: DesiredShare, **fields: object) -> Desired:
        """These shares are desired from now on, and no others."""
        assert self.joined is not None
        self.shares = {share.run_id: share for share in shares}
        self._sequence += 1
        wanted = Desired(
            node_id=self._node_id,
            epoch=self.epoch,
            instance=self.joined.instance,
            as_of=position_of(1, self._sequence),
            shares=tuple(self.shares[run_id] for run_id in sorted(self.shares)),
        )
        await self.write(wanted := replace(wanted, **fields))
        return wanted

    async def write(self, desired: Desired) -> None:
        """The value is on the node's subject."""
        subject = self._subjects.desired(self._node_id)
        payload = msgspec.json.encode(desired)
        assert await stored(self._connection, subject, payload, headers={}, within_s=5)

    async def forget(self) -> None:
        """A log that has just begun: nothing is desired of anybody, and positions are low again."""
        await self._connection.jetstream().purge_stream("DESIRED")
        self._sequence = 1

    def forge_epoch(self) -> None:
        """The node's life is a newer one than its agent was ever told of."""
        self._sequence += 1
        self.epoch = NodeEpoch(position_of(1, self._sequence))

    def told(self, kind: type[R], run_id: RunId | None = None) -> list[R]:
        """The reports of one kind, of one run."""
        return [
            one for one in self.reports if isinstance(one, kind) and run_id in {None, getattr(one, "run_id", run_id)}
        ]

    async def heard(self, kind: type[R], run_id: RunId | None = None, *, within_s: float = 10.0) -> R:
        """The first report of one kind, once it is there."""
        await until(lambda: self.told(kind, run_id), within_s=within_s, what=f"{kind.__name__} of {run_id}")
        return self.told(kind, run_id)[0]

    async def pooled(self) -> tuple[GpuUuid, ...]:
        """The GPUs of the node, once all were found clean."""
        return (await self.heard(GpusFoundClean)).gpu_uuids

    async def ended(self, run_id: RunId, *, within_s: float = 10.0) -> ShareEnded:
        """How the run ended, once its GPUs were released as well."""
        await self.heard(GpusReleased, run_id, within_s=within_s)
        return self.told(ShareEnded, run_id)[0]

    def order(self, run_id: RunId) -> list[str]:
        """The kinds of reports about a run, in order."""
        kinds = (ShareStarted, ShareEnded, GpusReleased)
        return [type(one).__name__ for one in self.reports if isinstance(one, kinds) and one.run_id == run_id]


@asynccontextmanager
async def control_of(connection: Connection, node_id: NodeId = NODE) -> AsyncIterator[Control]:
    """Streams are there, and reports of the node are answered, until the block is left."""
    await found(connection, StreamSettings())
    control = Control(connection, node_id)
    served = Served(Subjects().report(node_id), "gate", control.answer, b"")
    async with serving(connection, served):
        yield control


@asynccontextmanager
async def log_of(connection: Connection, run_id: RunId, rank: int = 0) -> AsyncIterator[Callable[[], bytes]]:
    """The output of a rank as a reader puts it together: what comes twice is dropped by its offset."""
    output = bytearray()

    async def take(message: object) -> None:
        offset = int(message.headers["Muster-Offset"])  # type: ignore[attr-defined]
        assert offset <= len(output), "a gap"
        output.extend(message.data[len(output) - offset :])  # type: ignore[attr-defined]

    subscription = await connection.subscribe(f"muster.main.log.*.*.{run_id}.{rank}", cb=take)
    await connection.flush()
    yield lambda: bytes(output)
    await subscription.unsubscribe()


def share_of(
    gpus: tuple[GpuUuid, ...], *command: str, job: str = "jaa", attempt: int = 1, **fields: object
) -> DesiredShare:
    """A share of a run on one node that has one rank for each of the GPUs. `fields` of the spec or of the share."""
    names = set(JobSpec.__struct_fields__)
    spec = JobSpec(
        name="test",
        command=command,
        gpus=len(gpus),
        stop_grace_s=int(str(fields.pop("stop_grace_s", 5))),
        **{name: value for name, value in fields.items() if name in names},  # type: ignore[arg-type]
    )
    share = DesiredShare(
        run_id=RunId(f"{job}-{attempt}"),
        job_id=JobId(job),
        team=TeamId("red"),
        attempt=attempt,
        order=Order.RUN,
        slots=SlotMask((1 << len(gpus)) - 1),
        gpu_uuids=gpus,
        node_rank=0,
        nodes=1,
        first_rank=0,
        world_size=len(gpus),
        local_size=len(gpus),
        master_addr="127.0.0.1",
        master_port=12345,
        spec=spec,
    )
    return replace(share, **{name: value for name, value in fields.items() if name not in names})


def settings_of(server: EmbeddedNats, data_dir: Path, node_id: NodeId = NODE, **fields: object) -> AgentSettings:
    """Settings of an agent that is quick to notice things."""
    login = server.login(f"agent-{node_id}")
    quick = {"heartbeat_every_s": 0.2, "reread_every_s": 1.0, "gpus": "simulated:4", "gpus_every_s": 0.1} | fields
    return AgentSettings(
        nats_urls=login.urls,
        nats_user=login.user,
        nats_password=login.password,
        node_id=node_id,
        data_dir=data_dir,
        **quick,  # type: ignore[arg-type]
    )


__all__ = ["NODE", "Control", "Position", "connect", "control_of", "log_of", "settings_of", "share_of"]
