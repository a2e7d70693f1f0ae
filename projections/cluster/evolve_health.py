"""How verdicts on GPUs, drains, maintenance and alarms change the cluster."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from events.alarm import AlarmCleared, AlarmRaised
from events.base import GpuUuid, NodeId, Recorded
from events.fleet import (
    DrainCause,
    NodeClockJudged,
    NodeDrainBegun,
    NodeDrained,
    NodeDrainEnded,
    NodeRetired,
)
from events.gpu import GpuJudged, GpuRecovered, GpuReturned, GpuSignalled, Recovery
from events.node import RanksUnkillable
from events.operator import (
    GpuReturnAsked,
    MaintenanceCancelled,
    MaintenancePlanned,
    NodeDrainAsked,
    NodeUndrainAsked,
)
from projections.cluster.fitness import (
    GRAVITY,
    HISTORY_MAX,
    OUT,
    PENDING_MAX,
    STOPS,
    Ailment,
    Drain,
    Fault,
    Fitness,
    Pending,
    Remedy,
    Window,
)
from projections.cluster.index import node_of, put_node, put_run
from projections.cluster.job import EVIDENCE_MAX
from projections.cluster.node import Node
from projections.cluster.state import Alarm, Cluster

WINDOWS_MAX: Final = 64  # of one node; the gate refuses more


def rebooted(before: Node, boot_id: str) -> Fitness:
    """What a new life leaves of a node's fitness: all of it; another boot is a remedy for what it helps against."""
    fitness = before.fitness
    if not before.epoch:
        return fitness
    remedies = fitness.remedies
    if boot_id != before.boot_id:
        ailments = sorted(fitness.ailments.items())
        remedies += tuple(Remedy(uuid, Recovery.REBOOT) for uuid, one in ailments if Recovery.REBOOT in one.returns_by)
    return replace(fitness, remedies=remedies, unkillable=(), pending=())


def _change(cluster: Cluster, node: Node | None, **changes: Any) -> None:
    if node is not None:
        put_node(cluster, node.being(replace(node.fitness, **changes)))


# GPUs


def _signalled(cluster: Cluster, e: GpuSignalled, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None or e.ended or e.gpu_uuid not in node.uuids or len(node.fitness.pending) >= PENDING_MAX:
        return
    sign = Pending(recorded.position, recorded.at, e.gpu_uuid, e.signal, e.code)
    _change(cluster, node, pending=(*node.fitness.pending, sign))


def _judged(cluster: Cluster, e: GpuJudged, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None:
        return
    fitness = node.fitness
    pending = tuple(sign for sign in fitness.pending if sign.position != e.signalled)
    history, ailments = fitness.history, fitness.ailments
    if GRAVITY[e.action]:
        fault = Fault(recorded.at, e.gpu_uuid, e.signal, e.code, e.action)
        history = (*history, fault)[-HISTORY_MAX:]
    known = ailments.get(e.gpu_uuid)
    if e.action in OUT and (known is None or GRAVITY[known.action] < GRAVITY[e.action]):
        ailments = ailments | {e.gpu_uuid: _ailment(e, recorded)}
    _change(cluster, node, pending=pending, history=history, ailments=ailments)
    if e.action in STOPS:
        _hurt(cluster, node, e.gpu_uuid, recorded)


def _ailment(e: GpuJudged, recorded: Recorded) -> Ailment:
    return Ailment(e.action, e.signal, e.code, recorded.at, e.returns_by, e.table, e.rule, recorded.id)


def _hurt(cluster: Cluster, node: Node, gpu_uuid: GpuUuid, recorded: Recorded) -> None:
    """The run that holds the GPU is to be stopped."""
    slot = node.mask((gpu_uuid,))
    for run_id, slots in node.held.items():
        run = cluster.runs[run_id]
        if slots & slot and not run.hurt:
            evidence = (*run.evidence, recorded.id)[:EVIDENCE_MAX]
            put_run(cluster, replace(run, hurt=True, evidence=evidence))


def _recovered(cluster: Cluster, e: GpuRecovered, _: Recorded) -> None:
    _remedied(cluster, node_of(cluster, e.node_id, e.node_epoch), e.gpu_uuid, e.means)


def _return_asked(cluster: Cluster, e: GpuReturnAsked, _: Recorded) -> None:
    _remedied(cluster, cluster.nodes.get(e.node_id), e.gpu_uuid, Recovery.OPERATOR)


def _remedied(cluster: Cluster, node: Node | None, gpu_uuid: GpuUuid, means: Recovery) -> None:
    ailment = node.fitness.ailments.get(gpu_uuid) if node is not None else None
    if node is not None and ailment is not None and means in ailment.returns_by:  # nothing else returns it
        remedy = Remedy(gpu_uuid, means)
        if remedy not in node.fitness.remedies:
            _change(cluster, node, remedies=(*node.fitness.remedies, remedy))


def _returned(cluster: Cluster, e: GpuReturned, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is None:
        return
    ailments = {uuid: ailment for uuid, ailment in node.fitness.ailments.items() if uuid != e.gpu_uuid}
    remedies = tuple(remedy for remedy in node.fitness.remedies if remedy.gpu_uuid != e.gpu_uuid)
    _change(cluster, node, ailments=ailments, remedies=remedies)


# Drains


def _drain_asked(cluster: Cluster, e: NodeDrainAsked, recorded: Recorded) -> None:
    """An operator's word replaces whatever drain there was."""
    node = cluster.nodes.get(e.node_id)
    if node is not None and not node.fitness.retired:
        _change(cluster, node, drain=Drain(e.cause, recorded.at, e.reason, e.deadline))


def _drain_begun(cluster: Cluster, e: NodeDrainBegun, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None:
        return
    unkillable = () if e.cause is DrainCause.UNKILLABLE else node.fitness.unkillable
    drain = node.fitness.drain
    if drain is None or e.cause is DrainCause.MAINTENANCE:
        drain = Drain(e.cause, recorded.at, e.reason, e.deadline, e.window)
    _change(cluster, node, drain=drain, unkillable=unkillable)


def _drained(cluster: Cluster, e: NodeDrained, _: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and node.fitness.drain is not None:
        _change(cluster, node, drain=replace(node.fitness.drain, done=True))


def _drain_ended(cluster: Cluster, e: NodeDrainEnded, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is None:
        return
    windows = tuple(window for window in node.fitness.windows if window.name != e.window)
    drain = node.fitness.drain
    over = drain is not None and drain.cause is e.cause and drain.window == e.window
    _change(cluster, node, drain=None if over else drain, windows=windows)


def _undrain_asked(cluster: Cluster, e: NodeUndrainAsked, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is not None and not node.fitness.retired:
        _change(cluster, node, drain=None)


def _retired(cluster: Cluster, e: NodeRetired, _: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None:
        _change(cluster, node, retired=True, windows=())


def _planned(cluster: Cluster, e: MaintenancePlanned, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is None:
        return
    kept = [window for window in node.fitness.windows if window.name != e.window][: WINDOWS_MAX - 1]
    windows = sorted([*kept, Window(e.window, e.starts, e.ends, e.reason)], key=lambda one: (one.starts, one.name))
    _change(cluster, node, windows=tuple(windows))


def _cancelled(cluster: Cluster, e: MaintenanceCancelled, _: Recorded) -> None:
    """What it has begun ends with it."""
    node = cluster.nodes.get(e.node_id)
    if node is None:
        return
    windows = tuple(window for window in node.fitness.windows if window.name != e.window)
    drain = node.fitness.drain
    over = drain is not None and drain.cause is DrainCause.MAINTENANCE and drain.window == e.window
    _change(cluster, node, drain=None if over else drain, windows=windows)


def _unkillable(cluster: Cluster, e: RanksUnkillable, _: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and e.run_id in node.held and e.run_id not in node.fitness.unkillable:
        _change(cluster, node, unkillable=(*node.fitness.unkillable, e.run_id))


def _clock_judged(cluster: Cluster, e: NodeClockJudged, _: Recorded) -> None:
    _change(cluster, node_of(cluster, e.node_id, e.node_epoch), ahead_s=e.ahead_s)


# Alarms

ABOUT_MAX: Final = 20  # nodes that an alarm names


def _raised(cluster: Cluster, e: AlarmRaised, recorded: Recorded) -> None:
    node_ids: tuple[NodeId, ...] = e.node_ids[:ABOUT_MAX]
    cluster.alarms[e.code] = Alarm(e.code, recorded.at, recorded.position, e.message, e.hint, node_ids, e.count)


def _cleared(cluster: Cluster, e: AlarmCleared, _: Recorded) -> None:
    cluster.alarms.pop(e.code, None)


HEALTH_CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    GpuSignalled: _signalled,
    GpuJudged: _judged,
    GpuRecovered: _recovered,
    GpuReturnAsked: _return_asked,
    GpuReturned: _returned,
    NodeDrainAsked: _drain_asked,
    NodeDrainBegun: _drain_begun,
    NodeDrained: _drained,
    NodeDrainEnded: _drain_ended,
    NodeUndrainAsked: _undrain_asked,
    NodeRetired: _retired,
    MaintenancePlanned: _planned,
    MaintenanceCancelled: _cancelled,
    RanksUnkillable: _unkillable,
    NodeClockJudged: _clock_judged,
    AlarmRaised: _raised,
    AlarmCleared: _cleared,
}
