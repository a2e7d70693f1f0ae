"""When a node counts as silent: never for our own sleep, never for an earlier life, and never before we could hear it."""

from collections.abc import ValuesView
from typing import Final

import pytest

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import NodeEpoch, NodeId
from events.fleet import NodeLost, NodeSuspected
from projections.cluster.node import Node
from projections.cluster.state import Cluster
from services.control.silence import GAP_MAX_S, LOOK_EVERY_S, Silences
from services.health.decide import decide as health
from tests.clusters import World

N1: Final = NodeId("n1")
N2: Final = NodeId("n2")
SUSPECT_S: Final = World().cluster.policy.suspect_after_s
LOST_S: Final = World().cluster.policy.lost_after_s
STEP_S: Final = 0.25


class Hearing:
    """A loop that turns, with its own beat and those of the nodes that are not `mute`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 1_000.0
        self.silences = Silences(self.now)
        self.mute: set[NodeId] = set()
        self.deaf = False  # our own beat does not come back either

    def turn(self, seconds: float) -> dict[NodeId, float]:
        """Who is silent, after some time of turning."""
        silent: dict[NodeId, float] = {}
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            silent = self.step()
        return silent

    def step(self) -> dict[NodeId, float]:
        """Who is silent now: beats come in, the loop turns, the round looks."""
        if not self.deaf:
            self.silences.heard_own(self.now)
            for node in self.world.cluster.nodes.values():
                if node.node_id not in self.mute:
                    self.silences.heard(node.node_id, node.epoch, self.now)
        self.silences.turn(self.now)
        return self.silences.silent(self.world.cluster, self.now)

    def sleep(self, seconds: float) -> None:
        """Nothing of ours runs, and no beat is read."""
        self.now += seconds

    def suspect(self, node_id: NodeId) -> None:
        """The log says that the node is suspect."""
        node = self.world.cluster.nodes[node_id]
        self.world.add(NodeSuspected(at=self.world.at, node_id=node_id, node_epoch=node.epoch, silent_s=30.0))


@pytest.fixture
def hearing() -> Hearing:
    """Two nodes, both heard."""
    hearing = Hearing(World({"n1": 1, "n2": 1}))
    assert hearing.turn(1) == {}
    return hearing


def test_a_node_that_beats_is_never_silent_and_one_that_stops_is(hearing: Hearing) -> None:
    """From its last beat, in seconds, once it is long enough to matter."""
    assert hearing.turn(200) == {}
    hearing.mute = {N1}
    assert hearing.turn(SUSPECT_S - 1) == {}
    silent = hearing.turn(11)
    assert silent.keys() == {N1}
    assert silent[N1] == pytest.approx(SUSPECT_S + 10, abs=LOOK_EVERY_S)
    hearing.mute = set()
    assert hearing.turn(1) == {}


@pytest.mark.parametrize("sleep_s", [GAP_MAX_S + 0.1, 1_000.0])
def test_a_gap_of_our_own_loop_restarts_all_silences(hearing: Hearing, sleep_s: float) -> None:
    """A control plane that slept declares nobody lost for it, and counts anew from its waking."""
    hearing.mute = {N1}
    hearing.turn(SUSPECT_S + 40)
    hearing.sleep(sleep_s)
    hearing.mute = {N1, N2}
    assert hearing.step() == {}
    assert hearing.turn(SUSPECT_S - 1) == {}
    assert hearing.turn(2).keys() == {N1, N2}


def test_a_short_pause_restarts_nothing(hearing: Hearing) -> None:
    """A busy moment is no excuse for a node."""
    hearing.mute = {N1}
    hearing.turn(SUSPECT_S - 1)
    hearing.sleep(GAP_MAX_S - STEP_S)

    assert hearing.turn(2).keys() == {N1}


def test_while_our_own_beat_does_not_come_back_nobody_is_silent(hearing: Hearing) -> None:
    """The way of the beats is broken, not all nodes at once; after it is mended, silence begins at zero."""
    hearing.deaf = True
    assert hearing.turn(LOST_S * 2) == {}
    hearing.deaf = False
    hearing.mute = {N1, N2}
    assert hearing.turn(SUSPECT_S - 1) == {}
    assert hearing.turn(2).keys() == {N1, N2}


def test_leading_begins_with_no_silence(hearing: Hearing) -> None:
    """Whatever went on before we led is not ours to judge."""
    hearing.mute = {N1}
    hearing.turn(SUSPECT_S + 10)
    hearing.silences.restart(hearing.now)

    assert hearing.step() == {}
    assert hearing.turn(SUSPECT_S - 1) == {}


def test_a_new_life_is_silent_only_from_when_it_is_first_seen(hearing: Hearing) -> None:
    """Not since the beats of the life before it, however long ago they were."""
    hearing.mute = {N1}
    hearing.turn(LOST_S + 20)
    hearing.world.join("n1", 1)

    assert hearing.step() == {}  # at once: what the last look said was of the life before
    assert hearing.turn(SUSPECT_S - 1) == {}
    assert hearing.turn(2).keys() == {N1}


def test_a_life_that_joins_between_two_looks_is_not_lost_for_the_one_before(hearing: Hearing) -> None:
    """The round in which its `NodeJoined` is read may come before the next look."""
    hearing.mute = {N1}
    while hearing.silences.silent(hearing.world.cluster, hearing.now).get(N1, 0.0) < LOST_S:
        hearing.turn(STEP_S)
    hearing.world.join("n1", 1)
    tick = hearing.world.tick(hearing.silences.silent(hearing.world.cluster, hearing.now + 0.01))

    assert health(hearing.world.cluster, tick) == []


def test_beats_of_another_life_do_not_count(hearing: Hearing) -> None:
    """An agent that has been replaced goes on beating: the life that is meant stays as silent as it is."""
    earlier = hearing.world.cluster.nodes[N1].epoch
    hearing.world.join("n1", 1)
    hearing.mute = {N1}
    seen: dict[NodeId, float] = {}
    for _ in range(round((SUSPECT_S + 2) / STEP_S)):
        for epoch in (earlier, NodeEpoch(earlier + 1_000)):
            hearing.silences.heard(N1, epoch, hearing.now)
        seen = hearing.turn(STEP_S)

    assert seen.keys() == {N1}


def test_a_beat_of_a_node_that_nobody_knows_is_forgotten(hearing: Hearing) -> None:
    """An agent that has not joined has no life to be silent in."""
    hearing.silences.heard(NodeId("ghost"), NodeEpoch(0), hearing.now)

    assert hearing.turn(SUSPECT_S + 10) == {}


def test_a_lost_node_is_not_silent_any_more(hearing: Hearing) -> None:
    """It has been judged; its next life will be."""
    hearing.mute = {N1}
    hearing.turn(LOST_S + 1)
    node = hearing.world.cluster.nodes[N1]
    hearing.world.add(NodeLost(at=hearing.world.at, node_id=N1, node_epoch=node.epoch, silent_s=LOST_S))

    assert hearing.turn(1) == {}


def test_a_suspect_does_not_recover_by_our_sleep(hearing: Hearing) -> None:
    """A restart of silences is no beat: it stays suspect until it is heard, and is not lost sooner for it."""
    hearing.mute = {N1}
    hearing.turn(SUSPECT_S + 1)
    hearing.suspect(N1)
    hearing.sleep(500)
    assert hearing.step() == {N1: SUSPECT_S}
    hearing.silences.restart(hearing.now)
    assert hearing.turn(10) == {N1: SUSPECT_S}
    assert hearing.turn(LOST_S - 11)[N1] < LOST_S
    hearing.mute = set()

    assert hearing.turn(1) == {}


def test_a_successor_keeps_a_suspect_until_it_is_heard() -> None:
    """A fresh control plane has heard nobody yet: that recovers nobody, and makes nobody suspect."""
    hearing = Hearing(World({"n1": 1, "n2": 1}))
    hearing.suspect(N1)
    hearing.mute = {N1, N2}

    assert hearing.step() == {N1: SUSPECT_S}
    assert hearing.turn(5) == {N1: SUSPECT_S}
    hearing.mute = set()
    assert hearing.turn(1) == {}


def test_when_the_network_is_no_longer_suspected_silence_begins_anew(hearing: Hearing) -> None:
    """What comes back last after a cut is not given up in the moment in which most are there again."""
    hearing.mute = {N1}
    hearing.turn(LOST_S + 20)
    hearing.suspect(N1)
    code = AlarmCode.NETWORK_SUSPECTED
    hearing.world.add(AlarmRaised(at=hearing.world.at, code=code, message="all of them"))
    assert hearing.turn(1)[N1] > LOST_S
    hearing.world.add(AlarmCleared(at=hearing.world.at, code=code))

    assert hearing.step() == {N1: SUSPECT_S}
    assert hearing.turn(LOST_S - 2)[N1] < LOST_S


def test_a_promise_is_that_of_the_last_beat_of_the_life_that_is_meant(hearing: Hearing) -> None:
    """Also of one that was heard while another led; a beat of an earlier life takes nothing back."""
    cluster, silences = hearing.world.cluster, Silences(0.0)
    epoch = cluster.nodes[N1].epoch
    silences.heard(N1, epoch, 1.0, promised_s=900.0)
    silences.heard(N1, epoch, 2.0, promised_s=120.0)
    silences.heard(N1, NodeEpoch(epoch - 1), 3.0, promised_s=1.0)

    assert silences.promised(cluster, N1) == 120.0


def test_who_was_never_heard_may_have_promised_as_much_as_any(hearing: Hearing) -> None:
    """A control plane that has just begun does not know what was told before it, or of a new life."""
    hearing.world.policy(lost_most_s=700.0)
    hearing.silences.heard(N1, hearing.world.cluster.nodes[N1].epoch, 1.0, promised_s=5.0)
    hearing.world.join("n1", 1)

    assert [hearing.silences.promised(hearing.world.cluster, node_id) for node_id in (N1, N2)] == [700.0, 0.0]


@pytest.mark.parametrize("sleep_s", [GAP_MAX_S - STEP_S, GAP_MAX_S + 0.1])
def test_what_was_promised_in_a_gap_was_not_heard(hearing: Hearing, sleep_s: float) -> None:
    """Beats that we missed may have said more than the last that we know."""
    hearing.turn(1)
    hearing.mute = {N1, N2}
    hearing.sleep(sleep_s)
    hearing.step()

    known = hearing.silences.promised(hearing.world.cluster, N1)

    assert known == (0.0 if sleep_s < GAP_MAX_S else hearing.world.cluster.policy.lost_most_s)


class Counted(dict[NodeId, Node]):
    """Nodes that count how often all of them are looked at."""

    looks = 0

    def values(self) -> ValuesView[Node]:  # type: ignore[override]  # not a `dict_values`, which has no name
        """All of them."""
        self.looks += 1
        return ValuesView(self)


def test_nodes_are_looked_at_twice_a_second_however_often_rounds_come() -> None:
    """A look costs a step a node; what it found holds until the next."""
    world = World({"n1": 1})
    cluster: Cluster = world.cluster
    nodes = Counted(cluster.nodes)
    cluster.nodes = nodes
    silences = Silences(0.0)
    for millisecond in range(10_000):
        silences.heard_own(0.0 if millisecond > 5_000 else millisecond / 1000)  # half the time we are deaf
        silences.turn(millisecond / 1000)
        silences.silent(cluster, millisecond / 1000)

    assert nodes.looks <= 10 / LOOK_EVERY_S + 1
