"""Who may be stopped at all, what each would lose, and how much that is."""

from events.base import JobId, NodeId, RunId, TeamId
from events.job import Priority
from events.operator import NodeCordoned
from services.scheduler.field import Field, is_ending, lost_gpu_s, may_be_stopped
from tests.services.scheduler.evicting import Stage


def stage() -> Stage:
    """Two nodes; runs may be stopped at once."""
    made = Stage({"n1": 8, "n2": 8})
    made.policy(min_runtime_s=0)
    return made


def test_runs_are_counted_by_team_and_class_and_once_each() -> None:
    """A gang on two nodes is one; what ends is counted apart; what may not be stopped is in no count."""
    made = stage()
    made.running("gang", {"n1": 2, "n2": 2}, team="a")
    made.running("ends", {"n1": 1})
    made.running("stays", {"n1": 1}, preemptible=False)
    made.end(JobId("ends"))
    made.wait(10)
    field = Field(made.cluster, made.at, "h100")

    assert field.claimable == {("a", 2): 4}
    assert field.lost == {"gang-1": 40}
    assert (field.ending, field.soon) == ({"ends-1"}, 1)
    assert set(field.runs) == {"gang-1", "ends-1", "stays-1"}


def test_what_nodes_could_give_is_counted_by_who_is_stopped() -> None:
    """What ends anyway counts for all; what stays for none; nodes that nobody placed are apart where domains are."""
    made = stage()
    made.running("low", {"n1": 2}, team="a", priority=Priority.LOW)
    made.running("other", {"n1": 3}, team="b")
    made.running("stays", {"n2": 3}, preemptible=False)
    made.running("ends", {"n2": 4})
    made.end(JobId("ends"))
    field = Field(made.cluster, made.at, "h100")

    assert field.roomy([], "") == [{(8, 3): 1, (8, 5): 1}]
    assert field.roomy([(TeamId("a"), 3)], "") == [{(8, 5): 2}]
    assert field.roomy([(TeamId("a"), 3), (TeamId("b"), 2)], "") == [{(8, 8): 1, (8, 5): 1}]
    assert field.roomy([], "rack") == [{(8, 3): 1}, {(8, 5): 1}]


def test_nodes_that_take_nothing_are_no_ground_to_look_on() -> None:
    """Cordoned, silent, or of another type."""
    made = stage()
    made.running("one", {"n1": 2})
    made.add(NodeCordoned(at=made.at, node_id=NodeId("n1")))
    made.round({NodeId("n2"): 40.0})

    assert Field(made.cluster, made.at, "h100").nodes == []
    assert Field(made.cluster, made.at, "a100").nodes == []


def test_what_a_run_loses_counts_from_its_last_checkpoint() -> None:
    """GPU-seconds; nothing where the clock of the log is behind."""
    made = stage()
    run_id = made.running("job", {"n1": 4})
    made.wait(100)
    assert lost_gpu_s(made.cluster.runs[run_id], made.at) == 400
    made.save("job")
    made.wait(10)
    assert lost_gpu_s(made.cluster.runs[run_id], made.at) == 40
    made.wait(-20)
    assert lost_gpu_s(made.cluster.runs[run_id], made.at) == 0


def test_a_run_that_fails_is_nobodys_victim_before_it_was_told_to_end() -> None:
    """Its end is its own: it is counted on when all its ranks have ended, or lifecycle has said so."""
    made = stage()
    run_id = made.running("job", {"n1": 4, "n2": 4})
    assert may_be_stopped(made.cluster, made.at, made.cluster.runs[run_id])
    made.end(JobId("job"), "n1", code=1)

    assert not may_be_stopped(made.cluster, made.at, made.cluster.runs[RunId("job-1")])
    assert not is_ending(made.cluster.runs[run_id])
    made.end(JobId("job"), "n2")
    assert is_ending(made.cluster.runs[run_id])
