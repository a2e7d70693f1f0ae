"""GPUs that verdicts took out: nobody gets one, and only what helps returns it. By the events alone."""

from collections.abc import Callable
from typing import Any, Final

from events.base import Position, Recorded
from events.gpu import GpuAction, GpuJudged, GpuRecovered, GpuReturned, Recovery
from events.job import JobPlaced
from events.node import NodeJoined
from events.operator import GpuReturnAsked
from projections.cluster.audit.books import Books, Gpu, NodeBook, SickBook, slots_of

LEFT_IN_USE: Final = (GpuAction.LOG, GpuAction.RESTART)


def _judged(books: Books, recorded: Recorded, e: GpuJudged) -> None:
    """The GPU is out, until something helps against all that it was judged for; the run that holds it may end by this."""
    node = books.nodes.get(e.node_id)
    if node is None or node.epoch != e.node_epoch:
        return
    if e.gpu_uuid in node.uuids:
        holder = books.owners.get(Gpu(e.node_id, node.epoch, node.uuids.index(e.gpu_uuid)))
        charge = books.credit.charges.get(holder) if holder is not None else None
        if charge is not None and e.action not in (GpuAction.LOG, GpuAction.DRAIN):  # which stop nothing
            charge.witnesses.add(recorded.id)
    if e.action in LEFT_IN_USE or e.held_back:
        return
    before = node.sick.get(e.gpu_uuid)
    helps = frozenset(e.returns_by) & (before.helps if before is not None else frozenset(Recovery))
    node.sick[e.gpu_uuid] = SickBook(e.signalled, helps)


def _returned(books: Books, recorded: Recorded, e: GpuReturned) -> None:
    node = books.nodes.get(e.node_id)
    if node is None or node.epoch != e.node_epoch:
        return
    sick = node.sick.pop(e.gpu_uuid, None)
    if sick is None:
        books.find(recorded, "returned by what helps", f"{e.gpu_uuid} of {e.node_id} was not out")
    elif e.means not in sick.helps or node.done.get((e.gpu_uuid, e.means), Position(0)) < sick.seen:
        books.find(recorded, "returned by what helps", f"{e.gpu_uuid} of {e.node_id}: no {e.means.value} that would")


def _placed(books: Books, recorded: Recorded, e: JobPlaced) -> None:
    """Verdicts and placements are one writer's: what was out when this was decided is out before it in the log."""
    for share in e.shares:
        node = books.nodes.get(share.node_id)
        if node is None or not node.alive or node.epoch != share.node_epoch or not node.sick:
            continue
        out = [slot for slot in slots_of(share.slots) if slot < len(node.uuids) and node.uuids[slot] in node.sick]
        if out:
            books.find(recorded, "no GPU that is out", f"{e.run_id} got slots {out} of {share.node_id}")


def _joined(books: Books, recorded: Recorded, e: NodeJoined) -> None:
    """Another boot may help; GPUs whose slots are another's by now are forgotten."""
    node = books.nodes[e.node_id]
    if node.boot_id and node.boot_id != e.boot_id:
        node.done |= {(uuid, Recovery.REBOOT): recorded.position for uuid in node.uuids}
    node.boot_id = e.boot_id
    known = frozenset(node.uuids)
    node.sick = {uuid: sick for uuid, sick in node.sick.items() if uuid in known}
    node.done = {done: position for done, position in node.done.items() if done[0] in known}


def _recovered(books: Books, recorded: Recorded, e: GpuRecovered) -> None:
    node = books.nodes.get(e.node_id)
    if node is not None and node.epoch == e.node_epoch:
        _does(node, e.gpu_uuid, e.means, recorded)


def _return_asked(books: Books, recorded: Recorded, e: GpuReturnAsked) -> None:
    if (node := books.nodes.get(e.node_id)) is not None:
        _does(node, e.gpu_uuid, Recovery.OPERATOR, recorded)


def _does(node: NodeBook, gpu_uuid: str, means: Recovery, recorded: Recorded) -> None:
    if gpu_uuid in node.uuids:
        node.done[gpu_uuid, means] = recorded.position


SICK_READERS: Final[dict[Any, Callable[[Books, Recorded, Any], None]]] = {
    GpuJudged: _judged,
    GpuReturned: _returned,
    JobPlaced: _placed,
    NodeJoined: _joined,
    GpuRecovered: _recovered,
    GpuReturnAsked: _return_asked,
}
