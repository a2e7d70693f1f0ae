"""What is said of GPUs, drains and alarms, as the fold has it."""

from typing import Any

import pytest
from msgspec.structs import replace

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import GpuUuid, NodeId, RunId
from events.fleet import DrainCause, NodeDrainBegun
from events.gpu import (
    GpuAction,
    GpuJudged,
    GpuRecovered,
    GpuResetFailed,
    GpuReturned,
    GpuSignal,
    GpuSignalled,
    Recovery,
)
from events.node import NodeJoined, RanksUnkillable
from events.operator import GpuReturnAsked, MaintenancePlanned, NodeDrainAsked, NodeUndrainAsked
from projections.cluster.desired import desired
from projections.cluster.fitness import HISTORY_MAX, PENDING_MAX, Fitness
from projections.cluster.snapshot import dump, load
from tests.clusters import World

N1 = NodeId("n1")
GPU, OTHER = GpuUuid("n1-0"), GpuUuid("n1-1")
BY_RESET = (Recovery.RESET, Recovery.REBOOT, Recovery.OPERATOR)


class Ward(World):
    """A world in which one node has troubles; `n1` has four GPUs."""

    def __init__(self) -> None:
        super().__init__({"n1": 4})

    @property
    def of_node(self) -> dict[str, Any]:
        """What is said of the node's present life."""
        return {"at": self.at, "node_id": N1, "node_epoch": self.cluster.nodes[N1].epoch}

    @property
    def fitness(self) -> Fitness:
        """Of the node."""
        return self.cluster.nodes[N1].fitness

    def signal(self, code: int = 95, gpu: GpuUuid = GPU, **said: Any) -> None:
        """Its agent reports an XID."""
        self.add(GpuSignalled(**self.of_node, gpu_uuid=gpu, signal=GpuSignal.XID, code=code, **said))

    def judge(self, action: GpuAction, gpu: GpuUuid = GPU, **said: Any) -> None:
        """The first sign that waits is judged so."""
        sign = self.fitness.pending[0]
        said = {"returns_by": BY_RESET, "table": "t", **said}
        judged = GpuJudged(
            **self.of_node, gpu_uuid=gpu, signalled=sign.position, signal=sign.signal, action=action, **said
        )
        self.add(replace(judged, code=sign.code))

    def take_out(self, action: GpuAction = GpuAction.RESET, **said: Any) -> None:
        """The GPU shows a sign and is taken out for it."""
        self.signal()
        self.judge(action, **said)

    def recover(self, means: Recovery = Recovery.RESET) -> None:
        """Its agent did something about the GPU."""
        self.add(GpuRecovered(**self.of_node, gpu_uuid=GPU, means=means))

    def boot(self, boot_id: str) -> None:
        """The node begins a new life."""
        joined = next(r.event for r in self.records if isinstance(r.event, NodeJoined))
        self.add(replace(joined, boot_id=boot_id))

    @property
    def remedies(self) -> list[Recovery]:
        """What was done, and nobody has judged."""
        return [remedy.means for remedy in self.fitness.remedies]


def test_a_sign_waits_for_its_verdict_and_signs_of_nothing_do_not() -> None:
    """That one ended, that a GPU shows it that the node has not, or that it is of another life changes nothing."""
    ward = Ward()
    ward.signal(ended=True)
    ward.signal(gpu=GpuUuid("elsewhere"))
    ward.add(
        GpuSignalled(
            at=ward.at, node_id=N1, node_epoch=ward.of_node["node_epoch"] + 1, gpu_uuid=GPU, signal=GpuSignal.HOT
        )
    )
    ward.add(
        GpuSignalled(
            at=ward.at, node_id=NodeId("n9"), node_epoch=ward.of_node["node_epoch"], gpu_uuid=GPU, signal=GpuSignal.HOT
        )
    )
    assert (ward.fitness.pending, N1 in ward.cluster.cases) == ((), False)

    ward.signal(code=79)
    assert [(sign.gpu_uuid, sign.code) for sign in ward.fitness.pending] == [(GPU, 79)]
    assert N1 in ward.cluster.cases


def test_a_gpu_that_left_the_node_shows_no_signs() -> None:
    """Its slot is its own for ever, but it is not there."""
    ward = Ward()
    ward.join("n1", 3)
    ward.signal(gpu=GpuUuid("n1-3"))
    assert ward.fitness.pending == ()


def test_what_one_node_is_remembered_for_is_bounded() -> None:
    """A GPU that cries without end fills no memory."""
    ward = Ward()
    for _ in range(PENDING_MAX + 9):
        ward.signal(code=13)
    assert len(ward.fitness.pending) == PENDING_MAX
    for _ in range(HISTORY_MAX + 9):
        ward.judge(GpuAction.RESTART)
    assert len(ward.fitness.history) == HISTORY_MAX


@pytest.mark.parametrize(
    ("action", "hurt", "sick"),
    [
        (GpuAction.LOG, False, 0),
        (GpuAction.RESTART, True, 0),
        (GpuAction.RESET, True, 1),
        (GpuAction.DRAIN, False, 1),
        (GpuAction.EVICT, True, 1),
    ],
)
def test_a_verdict_does_what_its_action_says(action: GpuAction, hurt: bool, sick: int) -> None:
    """To the run that holds the GPU, and to the GPU; the other GPUs and their runs go on."""
    ward = Ward()
    held = ward.put(ward.submit("held", 1), n1=1)
    beside = ward.put(ward.submit("beside", 1), n1=1)
    ward.signal()
    ward.judge(action)

    run, other = ward.run(held), ward.run(beside)
    assert run is not None
    assert other is not None
    assert (bool(run.hurt), bool(other.hurt)) == (hurt, False)
    assert ward.cluster.nodes[N1].sick == sick
    assert ward.fitness.pending == ()
    assert [fault.action for fault in ward.fitness.history] == ([action] if action is not GpuAction.LOG else [])
    assert dict(ward.cluster.capacity) == {"h100": 4}  # what is in use counts
    assert ward.cluster.nodes[N1].spare == 0b1100


def test_a_gpu_that_is_out_counts_for_nobody_once_it_is_free() -> None:
    """Seven of eight stay usable: pools, sizes and capacity say so, and again when it is returned."""
    ward = Ward()
    ward.take_out()
    node = ward.cluster.nodes[N1]
    assert (node.size, node.spare, dict(ward.cluster.capacity)) == (3, 0b1110, {"h100": 3})
    ward.add(GpuReturned(**ward.of_node, gpu_uuid=GPU, means=Recovery.RESET))
    assert (ward.cluster.nodes[N1].size, dict(ward.cluster.capacity)) == (4, {"h100": 4})


def test_what_the_breaker_holds_back_stops_the_run_and_waits_on() -> None:
    """The GPU stays in use, the sign is judged again, and it is one fault."""
    ward = Ward()
    held = ward.put(ward.submit("held", 1), n1=1)
    ward.signal()
    ward.judge(GpuAction.EVICT, held_back=True)

    run = ward.run(held)
    assert run is not None
    assert run.hurt
    assert (ward.cluster.nodes[N1].sick, [sign.held_back for sign in ward.fitness.pending]) == (0, [True])
    ward.judge(GpuAction.EVICT)
    assert (ward.cluster.nodes[N1].sick, ward.fitness.pending, len(ward.fitness.history)) == (1, (), 1)


def test_a_verdict_on_an_earlier_life_says_nothing_and_the_sign_waits_on() -> None:
    """A node that joins between a decision and its append is judged anew: what its GPUs showed is of the machine."""
    ward = Ward()
    ward.signal()
    stale = ward.of_node
    sign = ward.fitness.pending[0]
    ward.boot("b")
    ward.add(
        GpuJudged(**stale, gpu_uuid=GPU, signalled=sign.position, signal=sign.signal, action=GpuAction.EVICT, table="t")
    )
    assert (ward.fitness.ailments, ward.fitness.pending) == ({}, (sign,))
    ward.judge(GpuAction.EVICT)
    ward.add(GpuReturned(**stale, gpu_uuid=GPU, means=Recovery.RESET))
    assert list(ward.fitness.ailments) == [GPU]


def test_the_gravest_verdict_holds_and_only_what_helps_against_all_returns_the_gpu() -> None:
    """A reset does not mend what a reboot is needed for, whatever came first."""
    for first, second in ((GpuAction.RESET, GpuAction.EVICT), (GpuAction.EVICT, GpuAction.RESET)):
        ward = Ward()
        ward.take_out(first, returns_by=BY_RESET if first is GpuAction.RESET else (Recovery.REBOOT,))
        ward.take_out(second, returns_by=BY_RESET if second is GpuAction.RESET else (Recovery.REBOOT,))
        ailment = ward.fitness.ailments[GPU]
        assert (ailment.action, ailment.returns_by) == (GpuAction.EVICT, (Recovery.REBOOT,))
        ward.recover()
        assert ward.remedies == []


def test_only_a_remedy_that_the_verdict_names_is_one() -> None:
    """Each once; silence, and what helps against something else, are none."""
    ward = Ward()
    ward.recover()
    assert ward.remedies == []
    ward.take_out()
    ward.recover(Recovery.DRIVER)
    ward.signal(ended=True)
    assert ward.remedies == []
    ward.recover()
    ward.recover()
    ward.add(GpuReturnAsked(at=ward.at, node_id=N1, gpu_uuid=GPU))
    assert ward.remedies == [Recovery.RESET, Recovery.OPERATOR]
    ward.add(GpuReturned(**ward.of_node, gpu_uuid=GPU, means=Recovery.RESET))
    assert (ward.fitness.ailments, ward.remedies, len(ward.fitness.history)) == ({}, [], 1)


def test_what_was_done_before_a_sign_does_not_help_against_it_and_what_was_done_after_does() -> None:
    """Also where the remedy lands between the decision and its append, or before anything was decided."""
    ward = Ward()
    ward.take_out()
    ward.recover()
    ward.signal()
    ward.judge(GpuAction.RESET)
    assert ward.remedies == []

    ward.signal()
    ward.recover()
    assert ward.fitness.pending[0].since == (Recovery.RESET,)
    ward.judge(GpuAction.RESET)
    assert ward.remedies == [Recovery.RESET]


def test_another_boot_is_a_remedy_and_the_same_one_is_none() -> None:
    """An agent that joins anew has mended nothing. Found clean, a GPU that is out is given to nobody still."""
    ward = Ward()
    ward.take_out()
    ward.join("n1", 4)  # in the same boot
    assert (ward.remedies, ward.cluster.nodes[N1].pool, ward.cluster.nodes[N1].spare) == ([], 0b1111, 0b1110)
    ward.boot("another")
    ward.boot("a third")
    assert ward.remedies == [Recovery.REBOOT]


def test_what_is_known_of_gpus_goes_with_their_slots() -> None:
    """Where each boot brings other GPUs, memory does not grow with them."""
    ward = Ward()
    ward.take_out()
    ward.signal(gpu=OTHER)
    joined = next(r.event for r in ward.records if isinstance(r.event, NodeJoined))
    for boot in range(20):
        fresh = tuple(GpuUuid(f"boot{boot}-{slot}") for slot in range(4))
        ward.add(replace(joined, gpu_uuids=fresh, boot_id=str(boot)))
    assert (ward.fitness.ailments, ward.fitness.pending, ward.fitness.remedies) == ({}, (), ())


def test_a_reset_is_wanted_until_it_was_done_or_failed() -> None:
    """That it failed is a sign of its own, and another failure of it none."""
    ward = Ward()
    ward.take_out()
    assert desired(ward.cluster, N1).resets == (GPU,)
    failed = GpuResetFailed(**ward.of_node, gpu_uuid=GPU, message="timed out")
    ward.add(failed)
    assert [(sign.reset_failed, sign.code) for sign in ward.fitness.pending] == [(True, 95)]
    ward.judge(GpuAction.EVICT, returns_by=(Recovery.REBOOT, Recovery.OPERATOR))
    ward.add(failed)
    assert (ward.fitness.pending, desired(ward.cluster, N1).resets) == ((), ())

    ward = Ward()
    ward.take_out()
    ward.recover()
    assert desired(ward.cluster, N1).resets == ()


def test_an_operators_word_on_a_gpu_wipes_what_it_did_before() -> None:
    """Mended by a person, it is no repeat offender."""
    ward = Ward()
    ward.take_out()
    ward.signal(gpu=OTHER)
    ward.judge(GpuAction.RESET, gpu=OTHER)
    ward.add(GpuReturned(**ward.of_node, gpu_uuid=GPU, means=Recovery.OPERATOR))
    assert [fault.gpu_uuid for fault in ward.fitness.history] == [OTHER]


def test_unkillable_ranks_wait_for_a_drain_and_another_boot_ends_them() -> None:
    """Of runs that the node holds, each once."""
    ward = Ward()
    held = ward.put(ward.submit("held", 1), n1=1)
    run = ward.run(held)
    assert run is not None
    ward.add(RanksUnkillable(**ward.of_node, run_id=run.run_id), RanksUnkillable(**ward.of_node, run_id=run.run_id))
    ward.add(RanksUnkillable(**ward.of_node, run_id=RunId("nobody-1")))
    assert list(ward.fitness.unkillable) == [run.run_id]
    ward.boot("b")
    assert list(ward.fitness.unkillable) == [run.run_id]
    ward.boot("another")
    assert list(ward.fitness.unkillable) == []


def test_a_drain_begun_takes_what_it_was_for_and_an_operator_ends_it() -> None:
    """After an operator's word health drains the node no more for what it knew; the GPUs that are out stay so."""
    ward = Ward()
    ward.take_out(whole_node=True)
    ward.add(NodeDrainBegun(**ward.of_node, cause=DrainCause.GPU, reason="xid 79"))
    ward.add(NodeDrainBegun(**ward.of_node, cause=DrainCause.LEMON))
    drain = ward.fitness.drain
    assert drain is not None
    assert drain.cause is DrainCause.GPU
    ward.add(NodeUndrainAsked(at=ward.at, node_id=N1))
    assert not ward.cluster.nodes[N1].closed
    assert ward.fitness.undrained_at == ward.at
    assert [ailment.whole_node for ailment in ward.fitness.ailments.values()] == [False]
    assert N1 not in ward.cluster.cases


def test_an_alarm_is_raised_until_it_is_cleared() -> None:
    """Another one of its kind replaces it; to clear one that is not raised is nothing."""
    ward = Ward()
    raised = AlarmRaised(at=ward.at, code=AlarmCode.BREAKER, message="20 of 100 GPUs", node_ids=(N1,) * 99, count=99)
    ward.add(AlarmCleared(at=ward.at, code=AlarmCode.BREAKER), raised)
    assert (len(ward.cluster.alarms[AlarmCode.BREAKER].node_ids), ward.cluster.alarms[AlarmCode.BREAKER].count) == (
        20,
        99,
    )
    ward.add(AlarmCleared(at=ward.at, code=AlarmCode.BREAKER))
    assert dict(ward.cluster.alarms) == {}


def test_all_of_it_survives_a_snapshot() -> None:
    """A control plane that starts from one knows what is out and why."""
    ward = Ward()
    ward.take_out()
    ward.signal(code=79, gpu=OTHER)
    ward.recover()
    ward.add(NodeDrainAsked(at=ward.at, node_id=N1, reason="fans"))
    ward.add(MaintenancePlanned(at=ward.at, node_id=N1, window="w", starts=ward.at, ends=ward.at))
    ward.add(AlarmRaised(at=ward.at, code=AlarmCode.BREAKER, message="too many"))
    restored = load(dump(ward.cluster), log_id="test")
    assert restored is not None
    assert restored.nodes[N1] == ward.cluster.nodes[N1]
    assert restored.alarms == ward.cluster.alarms
    assert set(restored.cases) == set(ward.cluster.cases)
