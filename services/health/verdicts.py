"""Verdicts: what each sign of a GPU means, which GPUs are sound again, and which nodes are drained with their GPUs."""

from datetime import datetime
from typing import Final, TypedDict

from events.alarm import AlarmCode
from events.base import Event, NodeEpoch, NodeId
from events.fleet import DrainCause, NodeDrainBegun, NodeDrainEnded
from events.gpu import GpuJudged, GpuReturned
from projections.cluster.evolve import evolve
from projections.cluster.fitness import LEMON_FAULTS, OUT, Pending
from projections.cluster.node import Node, NodeState, Slots
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.health.breaker import Breaker, out_of
from services.health.escalation import Verdict, is_lemon, judge
from services.health.table import TABLE_VERSION, line_of

DECIDED_MAX: Final = 1_000  # events of one round; the rest is the next round's
RUNS_TOLD: Final = 3  # that a reason names


class _OfNode(TypedDict):
    """What every word on a node says."""

    at: datetime
    node_id: NodeId
    node_epoch: NodeEpoch


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """What is said of GPUs and, for their sake, of nodes.

    What is sound again is returned before anything is taken out: a remedy helps against what was there before it.
    """
    node_ids = sorted(cluster.cases)
    if not node_ids and AlarmCode.BREAKER not in cluster.alarms:
        return []
    turn = _Turn(cluster.fork(), tick)
    for node_id in node_ids:
        turn.give_back(node_id)
    for node_id in node_ids:
        turn.judge(node_id)
        turn.drain(node_id)
    if not turn.full:  # else not all was looked at that may be held back
        turn.events += turn.breaker.says(cluster, tick)
    return turn.events


class _Turn:
    """What is decided, folded into a cluster of its own as it goes."""

    def __init__(self, cluster: Cluster, tick: Tick) -> None:
        self.cluster = cluster
        self.tick = tick
        self.events: list[Event] = []
        self.breaker = Breaker(cluster)

    @property
    def full(self) -> bool:
        """Whether the rest is the next round's."""
        return len(self.events) >= DECIDED_MAX

    def _say(self, event: Event) -> None:
        self.events.append(event)
        self.cluster = evolve(self.cluster, self.tick.decided(event))

    def give_back(self, node_id: NodeId) -> None:
        """GPUs that something helped are in use again, and so is the node, where it was drained for them."""
        for remedy in self.cluster.nodes[node_id].fitness.remedies:
            node = self.cluster.nodes[node_id]
            if remedy.gpu_uuid in node.fitness.ailments and not self.full:
                said = GpuReturned(**self._of(node), gpu_uuid=remedy.gpu_uuid, means=remedy.means, table=TABLE_VERSION)
                self._say(said)
        node = self.cluster.nodes[node_id]
        if (cause := _over(node)) is not None and not self.full:
            self._say(NodeDrainEnded(**self._of(node), cause=cause))

    def judge(self, node_id: NodeId) -> None:
        """Each sign has its verdict; one that the breaker holds back has it once, and waits on."""
        for sign in self.cluster.nodes[node_id].fitness.pending:
            if self.full:
                return
            node = self.cluster.nodes[node_id]
            verdict = judge(node.fitness, sign, self.tick.at)
            out = verdict.line.action in OUT
            held_back = out and not self.breaker.admits(node, _out_with(node, node.mask((sign.gpu_uuid,))))
            if not (held_back and sign.held_back):
                self._say(self._judged(node, sign, verdict, held_back=held_back))

    def drain(self, node_id: NodeId) -> None:
        """A node is drained for what concerns all of it."""
        node = self.cluster.nodes[node_id]
        if node.fitness.drain is not None or self.full:
            return
        if (found := _to_drain(node, self.tick.at)) is not None and self.breaker.admits(node, node.present.bit_count()):
            cause, reason = found
            self._say(NodeDrainBegun(**self._of(node), cause=cause, reason=reason))

    def _of(self, node: Node) -> _OfNode:
        return {"at": self.tick.at, "node_id": node.node_id, "node_epoch": node.epoch}

    def _judged(self, node: Node, sign: Pending, verdict: Verdict, *, held_back: bool) -> GpuJudged:
        line = verdict.line
        return GpuJudged(
            **self._of(node),
            gpu_uuid=sign.gpu_uuid,
            signalled=sign.position,
            signal=sign.signal,
            code=sign.code,
            action=line.action,
            returns_by=line.returns_by,
            whole_node=line.whole_node,
            table=TABLE_VERSION,
            rule=verdict.rule,
            score=verdict.score,
            held_back=held_back,
        )


def _out_with(node: Node, slot: Slots) -> int:
    """GPUs of the node that are out once this one is too."""
    before = out_of(node)
    return before if before == node.present.bit_count() else (node.present & (node.sick | slot)).bit_count()


def _to_drain(node: Node, at: datetime) -> tuple[DrainCause, str] | None:
    """Why the node is to be drained, and in words."""
    fitness = node.fitness
    for gpu_uuid, ailment in sorted(fitness.ailments.items()):
        if ailment.whole_node:
            return DrainCause.GPU, f"{ailment.rule} of {gpu_uuid}: {line_of(ailment.signal, ailment.code)[1].words}"
    if fitness.unkillable:
        return DrainCause.UNKILLABLE, f"processes of {', '.join(fitness.unkillable[:RUNS_TOLD])} outlived KILL"
    if is_lemon(fitness, at):
        return DrainCause.LEMON, f"{LEMON_FAULTS} times in 7 days a GPU had to be taken out"
    return None


def _over(node: Node) -> DrainCause | None:
    """The cause of a drain of health's own that no longer holds."""
    fitness = node.fitness
    if fitness.mended:
        return DrainCause.GPU
    unkillable = fitness.drain is not None and fitness.drain.cause is DrainCause.UNKILLABLE
    gone = node.state is NodeState.UP and node.empty and not fitness.unkillable
    return DrainCause.UNKILLABLE if unkillable and gone else None
