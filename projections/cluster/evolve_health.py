"""How verdicts on GPUs, and alarms, change the cluster."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from events.alarm import AlarmCleared, AlarmRaised
from events.base import GpuUuid, NodeId, Recorded
from events.fleet import NodeClockJudged
from events.gpu import GpuJudged, GpuRecovered, GpuResetFailed, GpuReturned, GpuSignalled, Recovery
from events.node import RanksUnkillable
from events.operator import GpuReturnAsked
from projections.cluster.fitness import (
    GRAVITY,
    HISTORY_MAX,
    NOTED_MAX,
    PENDING_MAX,
    STOPS,
    Ailment,
    Fault,
    Fitness,
    Pending,
    Remedy,
    ailment_of,
)
from projections.cluster.index import node_of, put_node, put_run
from projections.cluster.job import EVIDENCE_MAX
from projections.cluster.node import Node
from projections.cluster.state import Alarm, Cluster


def joining(before: Node, uuids: tuple[GpuUuid, ...], boot_id: str) -> Fitness:
    """What a new life leaves of a node's fitness: all of it, for GPUs that it knows still. Another boot is a remedy."""
    fitness = before.fitness
    if not before.epoch:
        return fitness
    known = frozenset(uuids)
    fitness = replace(
        fitness,
        ailments={uuid: ailment for uuid, ailment in fitness.ailments.items() if uuid in known},
        pending=tuple(sign for sign in fitness.pending if sign.gpu_uuid in known),
        remedies=tuple(remedy for remedy in fitness.remedies if remedy.gpu_uuid in known),
    )
    if boot_id == before.boot_id:
        return fitness
    for gpu_uuid in uuids:
        fitness = _remedied(fitness, gpu_uuid, Recovery.REBOOT)
    return replace(fitness, unkillable=())


def _change(cluster: Cluster, node: Node | None, **changes: Any) -> None:
    if node is not None:
        put_node(cluster, node.being(replace(node.fitness, **changes)))


# GPUs


def _signalled(cluster: Cluster, e: GpuSignalled, recorded: Recorded) -> None:
    """Signs wait for their verdict: those of GPUs that the node has. That one ended says nothing."""
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None and not e.ended and node.present & node.mask((e.gpu_uuid,)):
        _await(cluster, node, Pending(recorded.position, recorded.at, e.gpu_uuid, e.signal, e.code))


def _reset_failed(cluster: Cluster, e: GpuResetFailed, recorded: Recorded) -> None:
    """A sign too, while a reset is what was to return the GPU."""
    node = node_of(cluster, e.node_id, e.node_epoch)
    ailment = node.fitness.ailments.get(e.gpu_uuid) if node is not None else None
    if node is not None and ailment is not None and Recovery.RESET in ailment.returns_by:
        signal, code = ailment.signal, ailment.code
        _await(cluster, node, Pending(recorded.position, recorded.at, e.gpu_uuid, signal, code, reset_failed=True))


def _await(cluster: Cluster, node: Node, sign: Pending) -> None:
    if len(node.fitness.pending) < PENDING_MAX:
        _change(cluster, node, pending=(*node.fitness.pending, sign))


def _judged(cluster: Cluster, e: GpuJudged, recorded: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None:
        return
    fitness = node.fitness
    sign = next((one for one in fitness.pending if one.position == e.signalled), None)
    pending = tuple(one for one in fitness.pending if one is not sign)
    if sign is not None and e.held_back:
        others = [one for one in pending if not (one.held_back and one.again(sign))]
        pending = tuple(sorted((*others, replace(sign, held_back=True)), key=lambda one: one.position))
    fitness = replace(fitness, pending=pending)
    if sign is None or not sign.held_back:  # else it was counted when it was judged first
        fitness = _counting(fitness, Fault(recorded.at, e.gpu_uuid, e.signal, e.code, e.action))
    if (ailment := ailment_of(e, recorded.at)) is not None:
        fitness = _ailing(fitness, e.gpu_uuid, ailment, since=sign.since if sign is not None else ())
    put_node(cluster, node.being(fitness))
    if e.action in STOPS:
        _hurt(cluster, node, e.gpu_uuid, recorded)


def _counting(fitness: Fitness, fault: Fault) -> Fitness:
    if GRAVITY[fault.action]:
        return replace(fitness, history=(*fitness.history, fault)[-HISTORY_MAX:])
    what = (fault.gpu_uuid, fault.signal, fault.code)
    others = [one for one in fitness.noted if (one.gpu_uuid, one.signal, one.code) != what]
    return replace(fitness, noted=(*others, fault)[-NOTED_MAX:])


def _ailing(fitness: Fitness, gpu_uuid: GpuUuid, ailment: Ailment, *, since: tuple[Recovery, ...]) -> Fitness:
    """The GPU is out, for all that it was judged for. What was done about it before this sign helps against it no more."""
    known = fitness.ailments.get(gpu_uuid)
    ailments = fitness.ailments | {gpu_uuid: ailment if known is None else known.with_(ailment)}
    fitness = replace(fitness, ailments=ailments, remedies=_of_others(fitness, gpu_uuid))
    for means in since:  # done between the sign and this verdict
        fitness = _remedied(fitness, gpu_uuid, means)
    return fitness


def _of_others(fitness: Fitness, gpu_uuid: GpuUuid) -> tuple[Remedy, ...]:
    return tuple(remedy for remedy in fitness.remedies if remedy.gpu_uuid != gpu_uuid)


def _hurt(cluster: Cluster, node: Node, gpu_uuid: GpuUuid, recorded: Recorded) -> None:
    """The run that holds the GPU is to be stopped."""
    slot = node.mask((gpu_uuid,))
    for run_id, slots in node.held.items():
        run = cluster.runs[run_id]
        if slots & slot and not run.hurt:
            evidence = (*run.evidence, recorded.id)[:EVIDENCE_MAX]
            put_run(cluster, replace(run, hurt=node.node_id, evidence=evidence))


def _recovered(cluster: Cluster, e: GpuRecovered, _: Recorded) -> None:
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is not None:
        put_node(cluster, node.being(_remedied(node.fitness, e.gpu_uuid, e.means)))


def _return_asked(cluster: Cluster, e: GpuReturnAsked, _: Recorded) -> None:
    node = cluster.nodes.get(e.node_id)
    if node is not None:
        put_node(cluster, node.being(_remedied(node.fitness, e.gpu_uuid, Recovery.OPERATOR)))


def _remedied(fitness: Fitness, gpu_uuid: GpuUuid, means: Recovery) -> Fitness:
    """Something was done about a GPU: it counts for what is wrong with it if it helps, and for signs that wait."""
    pending = tuple(
        replace(sign, since=(*sign.since, means)) if sign.gpu_uuid == gpu_uuid and means not in sign.since else sign
        for sign in fitness.pending
    )
    ailment, remedies = fitness.ailments.get(gpu_uuid), fitness.remedies
    if ailment is not None and means in ailment.returns_by and (remedy := Remedy(gpu_uuid, means)) not in remedies:
        remedies = (*remedies, remedy)
    return replace(fitness, pending=pending, remedies=remedies)


def _returned(cluster: Cluster, e: GpuReturned, _: Recorded) -> None:
    """The GPU is in use again. At an operator's word what it did before counts no more either."""
    node = node_of(cluster, e.node_id, e.node_epoch)
    if node is None:
        return
    fitness = node.fitness
    ailments = {uuid: ailment for uuid, ailment in fitness.ailments.items() if uuid != e.gpu_uuid}
    history = fitness.history
    if e.means is Recovery.OPERATOR:
        history = tuple(fault for fault in history if fault.gpu_uuid != e.gpu_uuid)
    _change(cluster, node, ailments=ailments, remedies=_of_others(fitness, e.gpu_uuid), history=history)


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
    GpuResetFailed: _reset_failed,
    GpuJudged: _judged,
    GpuRecovered: _recovered,
    GpuReturnAsked: _return_asked,
    GpuReturned: _returned,
    RanksUnkillable: _unkillable,
    NodeClockJudged: _clock_judged,
    AlarmRaised: _raised,
    AlarmCleared: _cleared,
}
