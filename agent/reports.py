"""Reports of an agent: what is to be told as events, and what is noted once the gate has accepted it."""

from typing import Final, Protocol

from msgspec.structs import replace

from agent.core.action import Describe, FoundClean, Join, Release, Report, ReportEnded, ReportSaved, ReportStarted
from agent.core.found import Told
from agent.node import Node
from events.ask import AgentReport
from events.base import NodeEpoch, Position
from events.node import (
    CheckpointSaved,
    GpusFoundClean,
    GpusReleased,
    NodeDescribed,
    NodeJoined,
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
            return NodeDescribed(at=at, node_id=node_id, node_epoch=epoch, labels=said.labels, taints=said.taints)
        case FoundClean(epoch, gpus):
            return GpusFoundClean(at=at, node_id=node_id, node_epoch=epoch, gpu_uuids=gpus)
        case ReportStarted(epoch, run_id):
            return ShareStarted(at=at, node_id=node_id, node_epoch=epoch, run_id=run_id)
        case ReportSaved(epoch, run_id, number):
            return CheckpointSaved(at=at, node_id=node_id, node_epoch=epoch, run_id=run_id, number=number)
        case ReportEnded(epoch, run_id, end):
            return ShareEnded(
                at=at,
                node_id=node_id,
                node_epoch=epoch,
                run_id=run_id,
                reason=end.reason,
                exit_code=end.exit_code,
                rank=end.rank,
                message=end.message[:MESSAGE_MAX],
            )
        case Release(epoch, run_id, slots):
            return GpusReleased(at=at, node_id=node_id, node_epoch=epoch, run_id=run_id, slots=slots)


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
        case Release(run_id=run_id):
            records.keep_told(run_id, Told.RELEASED)


def batch_of(actions: list[Report], most: int) -> list[Report]:
    """What goes into one message. A joining goes alone: the position that is answered is then its own."""
    for action in actions:
        if isinstance(action, Join):
            return [action]
    return actions[:most]
