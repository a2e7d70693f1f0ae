"""Why a job waits: each code with its numbers, who is ahead, who is in the way, and what can be done."""

from datetime import datetime, timedelta
from functools import reduce

from hypothesis import assume, given, settings

from events.ask import Basis, Tier, Why
from events.base import JobId, NodeId, Position
from events.credit import CreditRenewed, UsageRecorded
from events.fleet import NodeSuspected
from events.head import RoundDecided
from events.job import HoldCode
from events.node import EndReason
from projections.cluster.evolve import evolve
from projections.cluster.explain.supply import suits_kind
from projections.cluster.explain.why import BLOCKERS_MAX, explain
from projections.cluster.job import Job, JobState
from projections.cluster.node import NodeState
from projections.cluster.snapshot import dump
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.control.round import decide_all
from tests.clusters import World
from tests.histories import History, histories

ROUNDS_MAX = 40


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
    assert answer.message == "needs 8 GPUs; 1 of 2 nodes is suspect, lost, cordoned or drained"
    assert (answer.have["nodes"], answer.have["nodes_unwell"], answer.have["gpus_free"]) == (2, 1, 4)


def test_no_room_counts_what_is_free_and_names_the_largest_holders() -> None:
    """Blockers come the largest first, at most so many, and only those on an accepted type."""
    world = World({f"n{number}": 8 for number in range(4)})
    world.join("other", 8, gpu_type="a100")
    world.policy(promises=0)
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


@settings(max_examples=30)
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
        well = [node for node in mine if node.state is NodeState.UP and not node.closed]
        assert why.have["gpus_free"] == sum(node.spare.bit_count() for node in well)
        assert why.have["nodes_free_whole"] == sum(node.spare.bit_count() == node.size > 0 for node in well)
        assert why.have["gpus_total"] == sum(node.size for node in mine)
        assert why.have["nodes_unwell"] == len(mine) - len(well)
        assert why.have["nodes_unfit"] == len(typed) - len(mine)


# Laws


def waiting(cluster: Cluster) -> list[Job]:
    """The jobs that wait and are still wanted."""
    return [job for job in cluster.jobs.values() if job.state is not JobState.PLACED and not job.cancel]


def settled(grown: History) -> tuple[Cluster, datetime]:
    """The cluster once a round has nothing to say any more, half a minute after the one before; and when that is.

    But that what goes on is paid for: that is said for as long as it does.
    """
    cluster, at = grown.cluster.fork(), grown.at + timedelta(seconds=400)
    for _ in range(ROUNDS_MAX):
        silent = dict.fromkeys(cluster.suspects, cluster.policy.suspect_after_s)
        tick = Tick(at=at, position=Position(cluster.position + 1), silent=silent)
        decided = decide_all(cluster, tick)
        if all(isinstance(event, RoundDecided | CreditRenewed | UsageRecorded) for event in decided):
            return cluster, at
        cluster = reduce(evolve, map(tick.decided, decided), cluster)
        at += timedelta(seconds=31)
    raise AssertionError("rounds go on and on")


@settings(max_examples=50)
@given(histories())
def test_why_says_the_code_that_the_log_has_once_rounds_have_nothing_to_add(grown: History) -> None:
    """One rule for both: what is told when asked is what was decided."""
    cluster, at = settled(grown)
    assume(cluster.capacity)  # without one clean GPU nothing is placed, and the order of reasons says little
    for job in waiting(cluster):
        answer = explain(cluster, job.job_id, at=at)
        assert answer.code == job.hold, (job, answer)


@settings(max_examples=20)
@given(histories())
def test_every_waiting_job_has_a_reason_and_an_estimate_or_says_that_there_is_none(grown: History) -> None:
    """Whoever is behind whom, also before any round has looked (kueue#2270, flux-sched#1015)."""
    for job in waiting(grown.cluster):
        answer = explain(grown.cluster, job.job_id, at=grown.at)
        assert answer.code in set(HoldCode)
        assert answer.message
        assert answer.next_action
        assert answer.estimate
        assert answer.basis in set(Basis)
        assert (answer.estimated_start is None) == (answer.basis == Basis.UNKNOWN)
        assert answer.estimated_start is None or answer.estimated_start >= grown.at
        assert answer.code == HoldCode.NOT_EVALUATED or answer.tier != Tier.NOT_EVALUATED


@settings(max_examples=20)
@given(histories())
def test_asking_changes_nothing(grown: History) -> None:
    """And asked twice it says the same, on the cluster as on a fork."""
    before = dump(grown.cluster)
    for job in waiting(grown.cluster):
        answer = explain(grown.cluster, job.job_id, at=grown.at)
        assert answer == explain(grown.cluster.fork(), job.job_id, at=grown.at)
    assert dump(grown.cluster) == before


def test_an_estimate_goes_with_what_it_rested_on() -> None:
    """A promise that moves, or is dropped, moves or drops the start that was told (flux-sched#1424)."""
    world = World({"n1": 8, "n2": 8})
    runs = world.put(world.submit("runs", 8, max_runtime_s=600), n1=8)
    world.submit("gang", 16)
    world.rounds()
    first = why(world, "gang")
    assert (first.code, first.basis) == (HoldCode.PROMISED, Basis.PROMISE)

    world.wait(60)
    world.cancel(runs)
    world.rounds()
    sooner = why(world, "gang")
    assert first.estimated_start is not None
    assert sooner.estimated_start is not None
    assert sooner.estimated_start < first.estimated_start

    world.policy(promises=0)
    world.wait(60)
    world.rounds()
    assert why(world, "gang").basis != Basis.PROMISE


def test_a_job_whose_runs_never_start_says_that_it_backs_off() -> None:
    """It does not try again and again in silence (KAI#2075)."""
    world = World({"n1": 1})
    job = world.submit("job", 1, retries_infrastructure=2)
    world.rounds()
    world.end(job, reason=EndReason.START_FAILED)
    world.rounds()
    world.release(job)
    world.rounds()
    answer = why(world, "job")
    assert (answer.code, answer.tier, answer.basis) == (HoldCode.BACKING_OFF, Tier.HELD, Basis.BACK_OFF)
