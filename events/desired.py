"""Desired state: what a node should run. The dispatcher writes it, last value a node; the agent obeys the newest.

Agents are replaced last: they read what a newer version writes. What may grow by values is text here, no enumeration, and
a spec that cannot be read does not keep the rest of its message from being obeyed.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from events.base import START, GpuUuid, JobId, Moment, NodeEpoch, NodeId, Position, RunId, SlotMask, TeamId
from events.job import JobSpec, StopCause


class Order(StrEnum):
    """What is wanted of a share."""

    RUN = "run"
    STOP = "stop"


CAUSES_AT_FIRST: Final = frozenset(
    {
        StopCause.CANCEL,
        StopCause.TIME_LIMIT,
        StopCause.RANK_FAILED,
        StopCause.START_FAILED,
        StopCause.NODE_LOST,
        StopCause.PREEMPTED,
        StopCause.CONSOLIDATED,
        StopCause.QUEUE_HELD,
        StopCause.CREDITS,
    }
)
UNTOLD: Final = JobSpec(name="", command=(), gpus=0)  # in place of a spec that is not told, or cannot be read


class DesiredShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A share that this node carries, with all that its agent needs to start or stop it. Kept until released."""

    run_id: RunId
    job_id: JobId
    team: TeamId
    attempt: int
    order: Order
    cause: str | None = None  # with `stop`, one of `CAUSES_AT_FIRST`: agents before `reason` was read no other
    reason: str = ""  # with `stop`: the `StopCause`; jobs are told, reports echo nothing of it
    slots: SlotMask  # echoed in the release, not read
    gpu_uuids: tuple[GpuUuid, ...]  # of the slots, in their order
    node_rank: int  # place of this share in the gang, from 0
    nodes: int  # shares in the gang
    first_rank: int  # the global rank of local rank 0
    world_size: int  # ranks in the gang
    local_size: int  # ranks that this share starts
    master_addr: str
    master_port: int
    spec: JobSpec


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """How long this node is waited for once it is silent: the dearer a restart of what it runs, the longer.

    A restart gets dearer by a second of waiting each second, until a checkpoint is saved: that is told anew.
    """

    at: Moment  # by the servers' clock; no agent compares it with its own
    even_s: float  # as of then, the silence that costs as much as a restart
    least_s: float  # the wait is never shorter
    most_s: float  # and never longer

    def after(self, passed_s: float) -> float:
        """The silence after which the node may be given up, so many seconds after `at`."""
        return max(self.least_s, min(self.most_s, self.even_s + passed_s))


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node should run, as of a position in the log. An agent obeys nothing with a lower `as_of` than it has seen."""

    node_id: NodeId
    epoch: NodeEpoch  # of the node's life that is meant
    instance: str  # of the agent that is meant: another one stops reporting and starting
    as_of: Position
    lost: bool = False  # this life was declared lost: the agent joins anew once it has ended what runs
    shares: tuple[DesiredShare, ...] = ()  # ordered by run_id
    resets: tuple[GpuUuid, ...] = ()  # GPUs to be reset once nothing holds them, in order
    waiting: Waiting | None = None  # None: a control plane before this was told


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A node's agent is there. Published on `hb.<node>`; never in the log."""

    node_id: NodeId
    epoch: NodeEpoch
    instance: str
    runs: int = 0  # with living ranks
    at: Moment | None = None  # by the node's own clock, as it was sent
    version: str = ""  # of the agent's program
    patience_s: float = 0.0  # without contact for so long, it will have ended what may be started elsewhere


_desired = msgspec.json.Decoder(Desired)


class _AsOf(msgspec.Struct, frozen=True):
    """All that has to be read of what another version wrote."""

    as_of: Position = START


def as_of_in(payload: bytes) -> Position:
    """How new what is desired of a node is, whatever version wrote it; `START` where it does not say."""
    try:
        return msgspec.json.decode(payload, type=_AsOf).as_of
    except msgspec.DecodeError:
        return START


def decode_desired(payload: bytes) -> Desired:
    """What is desired of a node. A spec that is beyond this version is `UNTOLD`. Raises `msgspec.DecodeError`.

    It matters only where a share is to be started: ranks that run were started by a spec that is known.
    """
    try:
        return _desired.decode(payload)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(payload, type=dict[str, Any])
        shares = msgspec.convert(fields.get("shares", ()), tuple[dict[str, Any], ...])
        told = [share | {"spec": _legible_or_untold(share.get("spec"))} for share in shares]
        return msgspec.convert(fields | {"shares": told}, Desired)


def _legible_or_untold(spec: Any) -> JobSpec:  # noqa: ANN401 - as it came
    try:
        return msgspec.convert(spec, JobSpec)
    except msgspec.ValidationError:
        return UNTOLD
