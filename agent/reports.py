"""Reports of an agent: what is to be told as events, and what is noted once the gate has accepted it."""

from datetime import datetime
from typing import Final, Protocol

from msgspec.structs import replace

from agent.core.action import (
    Describe,
    FoundClean,
    Join,
    Release,
    Report,
    ReportEnded,
    ReportGpu,
    ReportOfRun,
    ReportSaved,
    ReportStarted,
    ReportUnkillable,
)
from agent.core.found import Told
from agent.core.signs import Recovered, ResetFailed, Sign, Telling
from agent.node import Node
from events.ask import AgentReport
from events.base import NodeEpoch, NodeId, Position
from events.gpu import GpuRecovered, GpuResetFailed, GpuSignalled
from events.node import (
    CheckpointSaved,
    GpusFoundClean,
    GpusReleased,
    NodeDescribed,
    NodeJoined,
    RanksUnkillable,
    ShareEnded,
    ShareStarted,
)
from runtime.clock import Clock

MESSAGE_MAX: Final = 500  # characters that the gate takes


class Place(Protocol):
    """Where this agent is reached, and what it is."""

    @property
    def address(self) -> str:
        """Where its ranks are reached by those of other nodes."""
        ...

    @property
    def version(self) -> str:
        """Of the agent's program."""
        ...


def event_of(action: Report, node: Node, place: Place, clock: Clock) -> AgentReport:
    """The event that tells of `action`."""
    node_id, at = node.identity.node_id, clock.now()
    match action:
        case Join():
            return NodeJoined(
                at=at,
                node_id=node_id,
                boot_id=node.boot_id,
                instance=node.identity.instance,
                gpu_type=node.gpus.gpu_type,
                gpu_uuids=tuple(node.gpus.uuids),
                address=place.address,
                port_base=node.identity.port_base,
                agent_version=place.version,
                labels=node.description.labels,
                taints=node.description.taints,
            )
        case Describe(epoch):
            said = node.description
            return NodeDescribed(
                at=at,
                node_id=node_id,
                node_epoch=epoch,
                labels=said.labels,
                taints=said.taints,
                agent_version=place.version,
            )
        case FoundClean(epoch, gpus):
            return GpusFoundClean(at=at, node_id=node_id, node_epoch=epoch, gpu_uuids=gpus)
        case ReportGpu(epoch, telling):
            return _event_of_gpu(node_id, epoch, telling)
        case _:
            return _event_of_run(action, node_id, at)


def _event_of_run(action: ReportOfRun, node_id: NodeId, at: datetime) -> AgentReport:
    node_epoch, run_id = action.epoch, action.run_id
    match action:
        case ReportStarted():
            return ShareStarted(at=at, node_id=node_id, node_epoch=node_epoch, run_id=run_id)
        case ReportSaved(number=number):
            return CheckpointSaved(at=at, node_id=node_id, node_epoch=node_epoch, run_id=run_id, number=number)
        case ReportEnded(end=end):
            return ShareEnded(
                at=at,
                node_id=node_id,
                node_epoch=node_epoch,
                run_id=run_id,
                reason=end.reason,
                exit_code=end.exit_code,
                rank=end.rank,
                message=end.message[:MESSAGE_MAX],
                out_of_memory=end.out_of_memory,
                isolated=end.isolated,
            )
        case ReportUnkillable(pids=pids, waited_s=waited_s):
            return RanksUnkillable(
                at=at, node_id=node_id, node_epoch=node_epoch, run_id=run_id, pids=pids, waited_s=waited_s
            )
        case Release(slots=slots):
            return GpusReleased(at=at, node_id=node_id, node_epoch=node_epoch, run_id=run_id, slots=slots)


def _event_of_gpu(node_id: NodeId, epoch: NodeEpoch, telling: Telling) -> AgentReport:
    """As of when it was seen: told again, it is the same to the byte, and the gate knows it."""
    at, word = telling.at, telling.word
    match word:
        case Sign():
            return GpuSignalled(
                at=at,
                node_id=node_id,
                node_epoch=epoch,
                gpu_uuid=word.gpu_uuid,
                signal=word.signal,
                code=word.code,
                ended=word.ended,
                source=word.source,
                message=word.message[:MESSAGE_MAX],
            )
        case Recovered(gpu_uuid, means):
            return GpuRecovered(at=at, node_id=node_id, node_epoch=epoch, gpu_uuid=gpu_uuid, means=means)
        case ResetFailed(gpu_uuid, message):
            return GpuResetFailed(
                at=at, node_id=node_id, node_epoch=epoch, gpu_uuid=gpu_uuid, message=message[:MESSAGE_MAX]
            )


def note(action: Report, node: Node, position: Position, clock: Clock) -> None:
    """The gate has accepted it: it is not told again."""
    records = node.records
    match action:
        case Join():
            node.joined(NodeEpoch(position))
            records.keep_as_of(position)  # what is desired of this life was written after it began
        case FoundClean(epoch, gpus):
            if epoch == node.identity.epoch:
                pooled = tuple(sorted({*node.identity.pooled, *gpus}))
                node.keep_identity(replace(node.identity, pooled=pooled))
        case Describe(epoch):
            if epoch == node.identity.epoch:
                node.keep_identity(replace(node.identity, description=node.description))
        case ReportSaved(run_id=run_id, number=number):
            records.keep_saved(run_id, number, clock.monotonic())
        case ReportStarted(run_id=run_id):
            records.keep_told(run_id, Told.STARTED)
        case ReportEnded(run_id=run_id):
            records.keep_told(run_id, Told.ENDED)
        case ReportUnkillable(run_id=run_id):
            records.keep_told(run_id, Told.UNKILLABLE)
        case ReportGpu(telling=telling):
            node.health.accepted(telling.number)
        case Release(run_id=run_id):
            records.keep_told(run_id, Told.RELEASED)


def batch_of(actions: list[Report], most: int) -> list[Report]:
    """What goes into one message.

    A joining goes alone: the position that is answered is then its own. So does a word about a GPU: sent again after an
    answer was lost, the message is the same to the byte.
    """
    alone = next((action for action in actions if isinstance(action, Join | ReportGpu)), None)
    return actions[:most] if alone is None else [alone]
