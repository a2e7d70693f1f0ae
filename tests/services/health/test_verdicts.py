"""Verdicts on GPUs: from state alone, each once, in bounded rounds; and what follows for runs and nodes."""

import pytest

from events.base import Event, NodeId
from events.fleet import DrainCause, NodeDrainBegun, NodeDrainEnded
from events.gpu import GpuAction, GpuJudged, GpuReturned, GpuSignal, Recovery
from events.job import JobPlaced, JobRequeued, RunStopping, StopCause
from events.node import EndReason, RanksUnkillable
from events.operator import GpuReturnAsked, NodeUndrainAsked
from projections.cluster.fitness import PENDING_MAX
from services.health.table import TABLE_VERSION
from services.health.verdicts import DECIDED_MAX, decide
from tests.clusters import names
from tests.services.health.ward import N1, Ward


def drains(said: list[Event]) -> list[tuple[NodeId, DrainCause]]:
    """The drains that begin."""
    return [(event.node_id, event.cause) for event in said if isinstance(event, NodeDrainBegun)]


def test_each_sign_has_one_verdict_that_names_its_table_and_line() -> None:
    """Deciding again before it is in the log says the same; after it, nothing."""
    world = Ward({"n1": 8})
    world.signal(95)
    world.signal(63, "n1-1")
    said = decide(world.cluster, world.tick())

    assert decide(world.cluster, world.tick()) == said
    assert [(e.gpu_uuid, e.action, e.table, e.rule) for e in said if isinstance(e, GpuJudged)] == [
        ("n1-0", GpuAction.RESET, TABLE_VERSION, "xid 95"),
        ("n1-1", GpuAction.LOG, TABLE_VERSION, "xid 63"),
    ]
    world.add(*said)
    assert world.judge() == []


@pytest.mark.parametrize(
    ("code", "stops", "spare"), [(63, False, 7), (94, True, 7), (95, True, 7), (74, False, 7), (151, True, 0)]
)
def test_the_run_and_the_gpu_go_the_way_of_the_verdict(code: int, stops: bool, spare: int) -> None:
    """Log, restart, reset, drain, evict: the others of the node stay usable but where the whole node is meant."""
    world = Ward({"n1": 8})
    job = world.submit("job", 1)
    world.rounds()
    world.start(job)
    world.signal(code)
    said = world.rounds()

    causes = [event.cause for event in said if isinstance(event, RunStopping)]
    assert causes == ([StopCause.GPU] if stops else [])
    room = world.cluster.nodes[N1]
    assert (0 if room.closed else room.spare.bit_count()) == spare
    world.assert_sound()


def test_a_run_is_stopped_requeued_and_never_put_onto_a_gpu_that_is_out() -> None:
    """Seven of eight stay usable; only a remedy returns the eighth."""
    world = Ward({"n1": 2})
    job = world.submit("job", 2)
    world.rounds()
    world.start(job)
    world.signal(95)
    world.rounds()
    world.end(job, reason=EndReason.STOPPED)
    world.release(job)
    world.wait(600)
    assert "JobRequeued" in names(world.rounds())
    world.wait(600)
    assert [e for e in world.rounds() if isinstance(e, JobPlaced)] == []
    small = world.submit("small", 1)
    world.rounds()
    assert world.placed[small] == [("n1", 1)]

    world.recover()
    world.end(small)
    world.release(small)
    said = world.rounds()
    assert [e.means for e in said if isinstance(e, GpuReturned)] == [Recovery.RESET]
    assert [e.job_id for e in said if isinstance(e, JobPlaced)] == [job]
    assert not [e for e in said if isinstance(e, JobRequeued)]
    world.assert_sound()


def test_a_new_life_finds_the_gpu_clean_and_still_nobody_gets_it() -> None:
    """Health is of the machine: an agent that joins anew in the same boot returns nothing, another boot does."""
    world = Ward({"n1": 2})
    world.signal(120)
    world.rounds()
    world.join("n1", 2)
    assert world.rounds() == []
    job = world.submit("job", 2)
    world.rounds()
    assert job not in world.placed

    world.reboot()
    assert "GpuReturned" in names(world.rounds())
    assert world.placed[job] == [("n1", 2)]
    world.assert_sound()


def test_a_remedy_helps_against_what_was_there_before_it() -> None:
    """One that came after it, in the same round, is judged anew."""
    world = Ward({"n1": 2})
    world.signal(95)
    world.judge()
    world.recover()
    world.signal(95)
    assert names(world.judge()) == ["GpuReturned", "GpuJudged"]
    assert world.sick() == 1


def test_a_reset_that_failed_leaves_a_reboot_or_a_word() -> None:
    """It is not tried for ever."""
    world = Ward({"n1": 2})
    world.signal(95)
    world.judge()
    world.fail_reset()
    world.judge()
    world.recover()
    assert world.judge() == []
    assert world.fitness().ailments[world.cluster.nodes[N1].uuids[0]].returns_by == (Recovery.REBOOT, Recovery.OPERATOR)
    world.add(GpuReturnAsked(at=world.at, node_id=N1, gpu_uuid=world.cluster.nodes[N1].uuids[0]))
    assert names(world.judge()) == ["GpuReturned"]


def test_a_node_is_drained_for_its_gpu_and_is_used_again_after_a_reboot() -> None:
    """What is drained automatically is undone by what helped."""
    world = Ward({"n1": 4, "n2": 4})
    world.signal(79)
    said = world.judge()
    assert drains(said) == [(N1, DrainCause.GPU)]
    assert "xid 79 of n1-0: the GPU has fallen off the bus" in str(said[-1])
    world.reboot()
    said = world.judge()
    assert names(said) == ["GpuReturned", "NodeDrainEnded"]
    assert not world.cluster.nodes[N1].closed
    assert [event.cause for event in said if isinstance(event, NodeDrainEnded)] == [DrainCause.GPU]


def test_an_operator_who_undrains_the_node_is_not_overruled() -> None:
    """The GPU stays out, the node is used."""
    world = Ward({"n1": 4, "n2": 4})
    world.signal(79)
    world.judge()
    world.add(NodeUndrainAsked(at=world.at, node_id=N1))
    assert world.judge() == []
    assert world.cluster.nodes[N1].spare == 0b1110


def test_ranks_that_outlive_kill_drain_their_node_until_they_are_gone() -> None:
    """Their GPUs are given back, and with the last of them the node."""
    world = Ward({"n1": 4, "n2": 4})
    job = world.put(world.submit("job", 1), n1=1)
    run = world.run(job)
    assert run is not None
    world.add(RanksUnkillable(**world.of("n1"), run_id=run.run_id, pids=(7,)))
    assert drains(world.judge()) == [(N1, DrainCause.UNKILLABLE)]
    world.signal(63)
    assert names(world.judge()) == ["GpuJudged"]
    world.end(job)
    world.release(job)
    assert names(world.judge()) == ["NodeDrainEnded"]


def test_a_reboot_ends_ranks_that_outlive_kill() -> None:
    """Once all GPUs were found clean."""
    world = Ward({"n1": 4, "n2": 4})
    run = world.run(world.put(world.submit("job", 1), n1=1))
    assert run is not None
    world.add(RanksUnkillable(**world.of("n1"), run_id=run.run_id))
    world.judge()
    world.join("n1", 4, clean=False, boot_id="another")
    assert world.judge() == []
    world.reboot()
    assert names(world.judge()) == ["NodeDrainEnded"]


def test_a_lemon_is_drained_until_an_operator_says_otherwise() -> None:
    """Its GPUs were taken out, and mended, five times in a week."""
    world = Ward({"n1": 8, "n2": 8})
    said: list[Event] = []
    for number in range(5):
        world.wait(3_600)
        world.signal(95, f"n1-{number}")
        said = world.judge()
        world.recover(Recovery.RESET, f"n1-{number}")
    assert drains(said) == [(N1, DrainCause.LEMON)]
    assert names(world.judge()) == ["GpuReturned"]
    assert world.cluster.nodes[N1].closed
    world.add(NodeUndrainAsked(at=world.at, node_id=N1))
    assert world.judge() == []


def test_a_round_is_bounded_and_the_next_goes_on() -> None:
    """All GPUs of a cluster cry at once."""
    world = Ward({f"n{number}": 1 for number in range(6)})
    for number in range(6):
        for _ in range(PENDING_MAX):
            world.signal(63, f"n{number}-0")
    assert [len(world.judge()) for _ in range(3)] == [DECIDED_MAX, 6 * PENDING_MAX - DECIDED_MAX, 0]


def test_every_signal_has_a_verdict() -> None:
    """Whatever its code."""
    world = Ward({"n1": 63})
    world.policy(breaker_percent=100)
    for slot, signal in enumerate(GpuSignal):
        world.signal(3, f"n1-{slot}", signal)
    assert len([e for e in world.judge() if isinstance(e, GpuJudged)]) == len(GpuSignal)
