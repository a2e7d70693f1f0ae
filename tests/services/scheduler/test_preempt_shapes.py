"""Where room is made: small jobs, gangs, racks, types, elastic gangs, and the search as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import NodeId, RunId
from events.codec import Codec, Stamp
from events.job import Checkpoint, Domain, GpusEarmarked, Priority, Topology
from services.scheduler.preempt import Preemption
from tests.services.scheduler.evicting import HIGH, LOW, Stage, destination, shared, stage


def test_a_small_job_takes_part_of_a_node() -> None:
    """As few GPUs as it needs, from those that lose least there; its neighbours run on."""
    made = stage()
    made.running("large", {"n1": 4}, **LOW)
    made.running("small", {"n1": 2}, **LOW)
    made.running("other", {"n1": 2}, preemptible=False, **LOW)
    made.hour()
    found = made.ask(made.waiting("new", 2, **HIGH))

    assert found is not None
    assert found.victims == ("small-1",)
    assert destination(found) == {"n1": 2}


def test_a_gang_stuck_on_one_small_neighbour_has_it_stopped() -> None:
    """Seven of eight GPUs are free: the eighth is looked at too, and counts as one."""
    made = stage({"n1": 8, "n2": 8})
    made.running("tiny", {"n1": 1}, **LOW)
    made.running("big", {"n2": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["tiny"]


def test_a_rest_goes_to_part_of_another_node() -> None:
    """Twelve GPUs: a whole node of eight, and four of another."""
    made = stage({"n1": 8, "n2": 8})
    made.running("whole", {"n1": 8}, **LOW)
    made.running("half", {"n2": 4}, **LOW)
    made.running("stays", {"n2": 4}, **HIGH)
    made.hour()
    found = made.ask(made.waiting("new", 12, **HIGH))

    assert destination(found) == {"n1": 8, "n2": 4}
    assert found is not None
    assert sorted(found.victims) == ["half-1", "whole-1"]


def test_nodes_times_gpus_go_to_parts_of_so_many_nodes() -> None:
    """Four nodes x two: what is there beside stays."""
    made = stage({f"n{number}": 8 for number in range(1, 5)})
    for number in range(1, 5):
        made.running(f"stays{number}", {f"n{number}": 6}, **HIGH)
        made.running(f"goes{number}", {f"n{number}": 2}, **LOW)
    made.hour()
    found = made.ask(made.waiting("new", 8, nodes=4, gpus_per_node=2, **HIGH))

    assert destination(found) == {f"n{number}": 2 for number in range(1, 5)}


def test_types_are_tried_in_the_order_of_preference() -> None:
    """The first where it can be; never on two."""
    made = stage({"n1": 8})
    made.join("a1", 8, gpu_type="a100")
    made.running("on-h", {"n1": 8}, **LOW)
    made.running("on-a", {"a1": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("a", 8, gpu_types=("a100", "h100"), **HIGH)) == ["on-a"]
    assert made.victims(made.waiting("h", 8, gpu_types=("b200", "h100"), **HIGH)) == ["on-h"]
    assert made.ask(made.waiting("both", 16, **HIGH)) is None


def test_labels_and_taints_hold_for_destinations() -> None:
    """Nobody is stopped on a node that the job may not use, nor on one that is cordoned."""
    made = stage({})
    made.join("n1", 8)
    made.join("n2", 8, taints=("experimental",))
    made.join("n3", 8, labels={"net": "ib"})
    for name in ("n1", "n2", "n3"):
        made.running(f"on-{name}", {name: 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("labelled", 8, labels={"net": "ib"}, **HIGH)) == ["on-n3"]
    assert made.ask(made.waiting("two", 24, **HIGH)) is None
    assert made.victims(made.waiting("three", 24, tolerates=("experimental",), **HIGH)) == ["on-n1", "on-n2", "on-n3"]


def racked(spare: str = "") -> Stage:
    """Two racks of two nodes, all taken; that of `spare` has saved just now."""
    made = stage({})
    for number in range(1, 5):
        made.join(f"n{number}", 8, labels={"spine": "s", "rack": f"r{(number + 1) // 2}"})
        made.running(f"on-n{number}", {f"n{number}": 8}, **LOW)
    made.hour()
    for number in (1, 4):
        made.save(f"on-n{number}")
    made.wait(60)
    if spare:
        made.save(f"on-{spare}")
    return made


@pytest.mark.parametrize(("spare", "stopped"), [("n2", ["on-n1", "on-n2"]), ("n3", ["on-n3", "on-n4"])])
def test_a_gang_that_must_stay_in_a_rack_takes_the_rack_that_loses_least(spare: str, stopped: list[str]) -> None:
    """Full racks are looked at too: what could be freed there counts."""
    made = racked(spare)
    near = Topology(within=Domain.RACK)

    assert made.victims(made.waiting("near", 16, topology=near, **HIGH)) == stopped
    assert made.ask(made.waiting("too-large", 24, topology=near, **HIGH)) is None


def test_a_gang_that_would_like_a_rack_gets_one_or_goes_anywhere() -> None:
    """Closeness comes before loss where it can be had."""
    made = racked("n2")
    near = Topology(within=Domain.RACK, required=False)

    assert made.victims(made.waiting("near", 16, topology=near, **HIGH)) == ["on-n1", "on-n2"]
    assert len(made.victims(made.waiting("wide", 24, topology=near, **HIGH))) == 3


def test_an_elastic_gang_has_only_its_least_freed() -> None:
    """It never takes from others what it can do without."""
    made = stage({"n1": 8, "n2": 8})
    made.running("one", {"n1": 8}, **LOW)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()
    found = made.ask(made.waiting("elastic", 16, min_gpus=8, **HIGH))

    assert destination(found) == {"n1": 8}


def test_a_broken_gpu_keeps_a_node_from_being_whole() -> None:
    """One of eight was never found clean."""
    made = stage({})
    made.join("n1", 8, clean=False)
    made.join("n2", 8)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["two"]
    assert made.ask(made.waiting("newer", 16, **HIGH)) is None


def test_what_is_promised_to_a_job_before_it_is_not_its_to_take() -> None:
    """Slots that are reserved in the room, free or not."""
    made = stage({"n1": 8, "n2": 8})
    made.running("one", {"n1": 8}, **LOW)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()
    scene = made.scene()
    scene.room.reserve(made.cluster.runs[RunId("one-1")].shares)
    found = made.ask(made.waiting("new", 8, **HIGH), scene)

    assert found is not None
    assert found.victims == ("two-1",)


def test_the_search_leaves_its_scene_as_it_was() -> None:
    """Found or not."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("one", {"n1": 8}, team="a")
    made.running("two", {"n2": 8}, team="a")
    made.hour()
    new, scene = made.waiting("new", 8, team="b"), made.scene()
    first = made.ask(new, scene)

    assert first is not None
    assert made.ask(new, scene) == first
    assert scene.evicted == set()
    assert scene.standing.used(made.cluster.jobs[new].team, "h100") == 0


def test_two_thousand_victims_fit_into_one_message() -> None:
    """A decision is one event: the limit of a message is 1 MiB."""
    made = stage({f"n{number:04d}": 8 for number in range(250)})
    for number in range(2000):
        made.running(f"job-with-a-name-{number:04d}", {f"n{number // 8:04d}": 1}, **LOW)
    made.hour()
    new = made.waiting("new", 2000, **HIGH)
    found = made.ask(new)
    assert found is not None
    event = GpusEarmarked(**made.tick().of_job(made.cluster.jobs[new]), shares=found.shares, victims=found.victims)

    assert len(found.victims) == 2000
    assert len(Codec().encode(event, Stamp("d"))) < 200_000


@given(st.data())
def test_a_destination_is_found_whenever_there_is_one_and_no_victim_is_idle(data: st.DataObject) -> None:
    """Over random clusters of gangs: enough for the shape, all on free or victims' slots, and none could be spared."""
    made = stage({f"n{number}": 4 for number in range(4)})
    kept = 0
    for number in range(data.draw(st.integers(0, 6))):
        free = [node for node in made.cluster.nodes.values() if node.spare]
        some = (
            data.draw(st.lists(st.sampled_from([node.node_id for node in free]), unique=True, max_size=3))
            if free
            else []
        )
        on = {str(n): data.draw(st.integers(1, made.cluster.nodes[n].spare.bit_count())) for n in some}
        if on:
            low = data.draw(st.booleans())
            made.running(f"r{number}", on, priority=Priority.LOW if low else Priority.URGENT)
            kept += not low
        made.wait(data.draw(st.integers(0, 100)))
    gpus = data.draw(st.sampled_from((1, 2, 3, 4, 8, 10, 16)))
    job = made.waiting("new", gpus, **HIGH)
    found = made.ask(job)

    could = {
        node.node_id: 4 - sum(s.bit_count() for r, s in node.held.items() if made.cluster.runs[r].rank == 0)
        for node in made.cluster.nodes.values()
    }
    nodes, rest = (0, gpus) if gpus < 4 else divmod(gpus, 4)
    whole = sum(gpu == 4 for gpu in could.values())
    fits = whole >= nodes and (not rest or sum(gpu >= rest for gpu in could.values()) > nodes)
    lows = any(run.rank == 3 for run in made.cluster.runs.values())
    assert (found is not None) == (fits and lows)
    if found is not None:
        _assert_lean(made, found, nodes, rest)


def _assert_lean(made: Stage, found: Preemption, nodes: int, rest: int) -> None:
    sizes = sorted((share.slots.bit_count() for share in found.shares), reverse=True)
    assert sizes == [4] * nodes + [rest] * bool(rest)
    for left_out in ("", *found.victims):
        have = {name: node.free for name, node in made.cluster.nodes.items()}
        for run_id in found.victims:
            for share in made.cluster.runs[run_id].shares if run_id != left_out else ():
                have[share.node_id] |= share.slots
        enough = all(not share.slots & ~have[NodeId(share.node_id)] for share in found.shares)
        assert enough == (not left_out)


def test_a_checkpoint_contract_alone_saves_nothing() -> None:
    """What counts is a checkpoint that was saved."""
    made = stage({"n1": 8, "n2": 8})
    made.running("able", {"n1": 8}, checkpoint=Checkpoint(), **LOW)
    made.wait(60)
    made.running("young", {"n2": 8}, **LOW)
    made.hour()

    assert made.victims(made.waiting("new", 8, **HIGH)) == ["young"]
