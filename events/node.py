"""The node family (`node.<node>`): what the agent of a node saw. Reports are true, and come late or twice."""

from enum import StrEnum
from typing import ClassVar

import msgspec

from events.base import NODE, Code, Count, Event, Family, GpuUuid, NodeEpoch, NodeId, RunId, SlotMask


class EndReason(StrEnum):
    """How a share came to its end."""

    EXITED = "exited"  # every rank exited by itself, or one failed and the agent stopped the others
    STOPPED = "stopped"  # told to stop
    START_FAILED = "start_failed"  # a rank could not be started
    NODE_REBOOTED = "node_rebooted"  # the ranks were of an earlier boot, or what looks after them was ended by somebody
    TIME_LIMIT = "time_limit"  # max_runtime, enforced on the node
    NEVER_STARTED = "never_started"  # stopped before anything ran here


class NodeReport(Event, kw_only=True, frozen=True):
    """What a node's agent saw. Written by the gate, with the node's own id from the subject."""

    family: ClassVar[Family] = NODE

    node_id: NodeId


class NodeJoined(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.joined.v1"):
    """A node began a new life: its position is the node's epoch, and all its GPUs are out of the pool until found clean."""

    boot_id: str  # of the kernel
    instance: str  # of the agent's data directory: two agents with one node id differ in it
    gpu_type: str
    gpu_uuids: tuple[GpuUuid, ...]
    address: str  # where its ranks are reached by those of other nodes
    port_base: Count  # first of the ports for rendezvous; slot n of a run's first rank uses port_base + n
    agent_version: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)  # "rack" and "spine" say where it stands
    taints: tuple[str, ...] = ()  # only jobs that tolerate all of them come here


class NodeDescribed(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.described.v1"):
    """The node's labels, taints and agent are these from now on. What runs there goes on: it is the same life."""

    node_epoch: NodeEpoch
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[str, ...] = ()
    agent_version: str = ""  # empty: of an agent from before this was said


class GpusFoundClean(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.gpus_found_clean.v1"):
    """No process holds these GPUs: they are in the pool of this epoch."""

    node_epoch: NodeEpoch
    gpu_uuids: tuple[GpuUuid, ...]


class ShareStarted(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.share_started.v1"):
    """Every rank of a run's share on this node was started."""

    node_epoch: NodeEpoch
    run_id: RunId


class ShareEnded(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.share_ended.v1"):
    """No rank of the share runs any more, or ever will."""

    node_epoch: NodeEpoch
    run_id: RunId
    reason: EndReason
    exit_code: Code = 0  # of the first rank that failed; 128 + n after signal n; 0: all ranks succeeded
    rank: Code = -1  # which rank that was; -1: none failed
    message: str = ""  # what could not be done, for `start_failed`
    out_of_memory: bool = False  # the kernel killed a process of it for want of memory
    isolated: bool = False  # with `stopped`: its agent had no contact, and nobody told it to


class CheckpointSaved(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.checkpoint_saved.v1"):
    """The run says that its progress is safe: work before this record is not lost when it is stopped."""

    node_epoch: NodeEpoch
    run_id: RunId
    number: Count  # the job's own count of them


class GpusReleased(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.gpus_released.v1"):
    """The agent verified that no process of the run holds these slots: they go back to the pool."""

    node_epoch: NodeEpoch
    run_id: RunId
    slots: SlotMask


class RanksUnkillable(NodeReport, kw_only=True, frozen=True, tag="musterbook.node.ranks_unkillable.v1"):
    """Processes of a run live on long after KILL: its GPUs cannot be released, and the node wants a person, or a reboot."""

    node_epoch: NodeEpoch
    run_id: RunId
    pids: tuple[Count, ...] = ()  # the first few
    waited_s: Count = 0  # since KILL
