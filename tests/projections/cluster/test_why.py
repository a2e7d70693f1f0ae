"""Why a job waits: each code with its numbers, who is ahead, who is in the way, and what can be done."""

from datetime import timedelta

from hypothesis import given

from events.ask import Why
from events.base import JobId, NodeId
from events.fleet import NodeSuspected
from events.job import HoldCode
from projections.cluster.job import JobState
from projections.cluster.node import NodeState
from projections.cluster.supply import suits_kind
from projections.cluster.why import BLOCKERS_MAX, explain
from tests.clusters import World
from tests.histories import History, histories


def why(world: World, job_id: str, *, later_s: float = 0.0) -> Why:
    """The explanation of the moment."""
    return explain(world.cluster, JobId(job_id), at=world.at + timedelta(seconds=later_s))


def test_a_job_that_the_fold_does_not_know_is_not_found() -> None:
    """Never submitted, or ended and forgotten."""
    world = World({"n1": 1})
    job = world.submit("job", 1)
    world.rounds()
    world.end(job)
    world.release(job)
    world.rounds()

    assert why(world, "job") == Why(job_id=job, found=False, position=world.tick().position, at=world.at)


def test_a_job_that_no_round_has_looked_at_says_so() -> None:
    """It would fit: `not_evaluated`, and those before it are counted by class, then age."""
    world = World({"n1": 4})
    world.submit("old", 1)
    world.submit("job", 2)
    world.submit("young", 1)
    world.submit("urgent", 1, priority="urgent")

    answer = why(world, "job")
    assert (answer.state, answer.code, answer.ahead) == ("queued", HoldCode.NOT_EVALUATED, 2)
    assert (answer.need, answer.blockers, answer.next_action) == ({"gpus": 2}, (), "wait")
    assert answer.message == "2 GPUs would fit: the next round places it, or a job before it"
    assert [why(world, name).ahead for name in ("urgent", "old", "young")] == [0, 1, 3]


def test_no_such_gpu_names_the_types_there_are() -> None:
    """Nothing to count: no node has one."""
    world = World({"n1": 4})
    world.submit("job", 1, gpu_types=("b200", "b300"))
    world.rounds()

    answer = why(world, "job")
    assert (answer.state, answer.code) == ("queued", HoldCode.NO_SUCH_GPU)
    assert answer.message == "no node has a GPU of type b200 or b300; known types: h100"
    assert set(answer.have.values()) == {0}


def test_exceeds_cluster_counts_all_there_is() -> None:
    """More than all nodes together have."""
    world = World({"n1": 4, "n2": 4})
    world.submit("job", 12)
    world.rounds()

    answer = why(world, "job")
    assert answer.code == HoldCode.EXCEEDS_CLUSTER
    assert answer.message == "needs 12 GPUs; all nodes together have 8, free or not (2 nodes)"
    assert answer.next_action == "ask for fewer GPUs, or add nodes"


def test_nodes_unwell_counts_them() -> None:
    """It would fit if they were well."""
    world = World({"n1": 4, "n2": 4})
    node = world.cluster.nodes[NodeId("n2")]
    world.add(NodeSuspected(at=world.at, node_id=node.node_id, node_epoch=node.epoch, silent_s=31.0))
    world.submit("job", 8)
    world.round({node.node_id: 31.0})

    answer = why(world, "job")
    assert answer.code == HoldCode.NODES_UNWELL
    assert answer.message == "needs 8 GPUs; 1 of 2 nodes is suspect, lost or cordoned"
    assert (answer.have["nodes"], answer.have["nodes_unwell"], answer.have["gpus_free"]) == (2, 1, 4)


def test_no_room_counts_what_is_free_and_names_the_largest_holders() -> None:
    """Blockers come the largest first, at most so many, and only those on an accepted type."""
    world = World({f"n{number}": 8 for number in range(4)})
    world.join("other", 8, gpu_type="a100")
    for number, gpus in enumerate((1, 2, 3, 4, 5, 6)):
        world.submit(f"b{number}", gpus, gpu_types=("h100",))
    world.submit("elsewhere", 8, gpu_types=("a100",))
    world.rounds()
    world.submit("job", 32, nodes=4, gpus_per_node=8, gpu_types=("h100",))
    world.rounds()

    answer = why(world, "job")
    assert answer.code == HoldCode.NO_ROOM
    assert answer.need == {"gpus": 32, "nodes": 4, "gpus_per_node": 8}
    assert answer.have == {
        "gpus_total": 32,
        "gpus_free": 11,
        "gpus_free_most": 4,
        "nodes": 4,
        "nodes_free_whole": 0,
        "nodes_unwell": 0,
        "nodes_unfit": 0,
    }
    assert (
        answer.message
        == "needs 32 GPUs (4 nodes x 8) on h100; 11 of 32 are free (4 at most on one node, 0 whole nodes)"
    )
    assert answer.blockers == ("b5", "b4", "b3", "b2", "b1")
    assert len(answer.blockers) == BLOCKERS_MAX


def test_backing_off_says_for_how_long() -> None:
    """From the log's own time; once it has passed, the job is like any other."""
    world = World({"n1": 1})
    job = world.submit("job", 1, retries_application=1)
    world.rounds()
    world.end(job, code=3)
    world.rounds()
    world.release(job)
    world.rounds()

    answer = why(world, "job")
    assert (answer.state, answer.code, answer.next_action) == ("queued", HoldCode.BACKING_OFF, "wait")
    assert answer.message == "attempt 1 failed; the next is not before 1 s from now"
    assert why(world, "job", later_s=1.0).code == HoldCode.NOT_EVALUATED


def test_a_job_with_gpus_says_how_far_it_is() -> None:
    """Placed, running, stopping: with the nodes that are there, or that keep it."""
    world = World({"n1": 4, "n2": 4})
    job = world.submit("job", 8)
    world.rounds()
    answer = why(world, job)
    assert (answer.state, answer.code, answer.ahead) == ("placed", "", 0)
    assert answer.message == "it has its GPUs on n1, n2; 0 of 2 nodes have started"

    world.start(job, "n1")
    assert why(world, job).message.endswith("1 of 2 nodes has started")
    world.start(job)
    world.rounds()
    assert (why(world, job).state, why(world, job).message) == ("running", "it runs on n1, n2")

    world.cancel(job)
    world.rounds()
    assert why(world, job).message == "it is stopping (cancel); 2 of 2 nodes hold GPUs still"
    world.end(job, "n1")
    world.release(job, "n1")
    assert (why(world, job).state, why(world, job).message) == (
        "stopping",
        "it is stopping (cancel); 1 of 2 nodes holds GPUs still",
    )


@given(histories())
def test_the_numbers_are_those_of_a_look_at_every_node_and_job(grown: History) -> None:
    """Counts and buckets say the same, also on a fork."""
    cluster = grown.cluster.fork()
    nodes = list(cluster.nodes.values())
    waiting = [job for job in cluster.jobs.values() if job.state is not JobState.PLACED]
    for job in waiting:
        why = explain(cluster, job.job_id, at=grown.at)
        types = job.spec.gpu_types
        typed = [node for node in nodes if not types or node.gpu_type in types]
        mine = [node for node in typed if suits_kind(job.shape, node)]
        well = [node for node in mine if node.state is NodeState.UP and not node.cordoned]
        assert why.have["gpus_free"] == sum(node.spare.bit_count() for node in well)
        assert why.have["nodes_free_whole"] == sum(node.spare.bit_count() == node.size > 0 for node in well)
        assert why.have["gpus_total"] == sum(node.size for node in mine)
        assert why.have["nodes_unwell"] == len(mine) - len(well)
        assert why.have["nodes_unfit"] == len(typed) - len(mine)
