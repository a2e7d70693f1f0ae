"""What keeps nodes and GPUs from use, by what operators and the control plane said: nothing new is placed there."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from events.base import NodeId, Position, Recorded
from events.fleet import FleetEvent, NodeDrainBegun, NodeDrainEnded, NodeLost, NodeRecovered, NodeRetired, NodeSuspected
from events.gpu import GpuJudged, GpuReturned
from events.job import NodeShare
from events.node import NodeJoined
from events.operator import MaintenanceCancelled, NodeCordoned, NodeDrainAsked, NodeUncordoned, NodeUndrainAsked
from projections.cluster.audit.books import slots_of
from projections.cluster.fitness import OUT

OURS: Final = "fleet:"  # before words of the control plane, which it knows when it decides; others it may not have read


class Shut:
    """Reasons, each of a node or of one GPU of it, with the position since which they hold."""

    def __init__(self) -> None:
        self._since: dict[tuple[NodeId, str], Position] = {}
        self._lives: dict[NodeId, Position] = {}

    def read(self, recorded: Recorded) -> None:
        """One more record."""
        event: Any = recorded.event
        if isinstance(event, NodeJoined):
            self._lives[event.node_id] = recorded.position
        elif isinstance(event, FleetEvent) and event.node_epoch != self._lives.get(event.node_id):
            return  # of a life that is over: the node joined anew while it was decided
        if (shuts := SHUTS.get(type(event))) is not None and (reason := shuts(event)):
            self._since.setdefault((event.node_id, reason), recorded.position)
        if (opens := OPENS.get(type(event))) is not None:
            word = opens(event)
            for key in [key for key in self._since if key[0] == event.node_id and word in key[1]]:
                del self._since[key]

    def against(self, share: NodeShare, uuids: Sequence[str], decided_at: Position) -> Iterator[str]:
        """Why nothing should have been placed so, by who decided on what there was at `decided_at`."""
        gpus = ["", *(uuids[slot] for slot in slots_of(share.slots) if slot < len(uuids))]
        for (node_id, reason), since in self._since.items():
            known = since <= decided_at or reason.startswith(OURS)
            if node_id == share.node_id and known and reason.partition("=")[2] in gpus:
                yield reason


SHUTS: Final[dict[type, Callable[[Any], str]]] = {
    NodeSuspected: lambda _e: "fleet:suspect=",
    NodeRetired: lambda _e: "fleet:retired=",
    NodeDrainBegun: lambda e: f"fleet:drain:{e.cause}=",
    NodeDrainAsked: lambda _e: "drain=",
    NodeCordoned: lambda _e: "cordon=",
    GpuJudged: lambda e: f"fleet:gpu={e.gpu_uuid}" if e.action in OUT and not e.held_back else "",
}
OPENS: Final[dict[type, Callable[[Any], str]]] = {
    NodeRecovered: lambda _e: "suspect=",
    NodeJoined: lambda _e: "suspect=",
    NodeLost: lambda _e: "suspect=",
    NodeDrainEnded: lambda e: f"drain:{e.cause}=",
    MaintenanceCancelled: lambda _e: "drain:maintenance=",
    NodeUndrainAsked: lambda _e: "drain",
    NodeUncordoned: lambda _e: "cordon=",
    GpuReturned: lambda e: f"gpu={e.gpu_uuid}",
}
