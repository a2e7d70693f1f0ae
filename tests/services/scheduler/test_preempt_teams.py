"""Who is stopped for jobs of other teams: only what is too much, only for who is due, and never in turn."""

from hypothesis import given
from hypothesis import strategies as st

from events.base import JobId
from events.job import GpusEarmarked, Priority
from events.node import EndReason
from services.scheduler.preempt import Preemption
from tests.services.scheduler.evicting import HIGH, LOW, Stage, shared, stage, team


def test_a_team_takes_back_its_share_from_one_that_is_above_its_own() -> None:
    """Whatever the classes: a share is a share."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("one", {"n1": 8}, team="a", **HIGH)
    made.running("two", {"n2": 8}, team="a", **HIGH)
    made.hour()
    made.save("two")
    made.wait(60)

    assert made.victims(made.waiting("mine", 8, team="b", **LOW)) == ["two"]


def test_nothing_is_taken_from_a_team_within_its_share() -> None:
    """The other has just what it is entitled to."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("one", {"n1": 8}, team="a")
    made.running("two", {"n2": 8}, team="b")
    made.hour()

    assert made.ask(made.waiting("more", 8, team="b")) is None


def test_a_team_beyond_its_share_takes_nothing() -> None:
    """Borrowing never goes by force."""
    made = stage({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    made.queues(team("a"), team("b"), team("c", weight=2))
    made.running("a1", {"n1": 8, "n2": 8}, team="a")
    made.running("b1", {"n3": 8, "n4": 8}, team="b")
    made.hour()

    assert made.ask(made.waiting("b2", 8, team="b")) is None


def test_only_so_much_is_taken_as_a_team_has_too_much() -> None:
    """Victims count as they are chosen: the third would leave its team with less than its share."""
    made = stage({"n1": 4, "n2": 4, "n3": 4, "n4": 4})
    shared(made)
    for number in range(1, 4):
        made.running(f"a{number}", {f"n{number}": 4}, team="a")
    made.running("b1", {"n4": 4}, team="b")
    made.hour()

    assert len(made.victims(made.waiting("b2", 4, team="b"))) == 1
    assert made.ask(made.waiting("b3", 8, team="b", nodes=2, gpus_per_node=4)) is None


def test_what_is_given_back_never_makes_the_rest_illegal() -> None:
    """The cheapest victims would leave the team above its share, its own lower class still running: its own go first."""
    made = stage({"n1": 8, "n2": 8})
    shared(made)
    made.running("mine", {"n1": 4}, team="b", **LOW)
    made.running("theirs", {"n1": 4}, team="a")
    made.running("cheap", {"n2": 8}, team="a")
    made.hour()
    made.save("cheap")
    made.wait(60)

    assert made.victims(made.waiting("new", 8, team="b", **HIGH)) == ["mine", "theirs"]


def test_in_a_tree_the_queue_above_must_have_too_much_as_well() -> None:
    """A team that borrows from its sibling, inside a queue that has its share, is nobody else's to take from."""
    made = stage({"n1": 8, "n2": 8, "n3": 8, "n4": 8})
    made.queues(team("org"), team("a", parent="org"), team("b", parent="org"), team("c"))
    made.running("a1", {"n1": 8, "n2": 8}, team="a")
    made.running("c1", {"n3": 8}, team="c")
    made.running("c2", {"n4": 8}, team="c")
    made.hour()

    assert made.ask(made.waiting("c3", 8, team="c")) is None
    assert made.victims(made.waiting("b1", 8, team="b")) == ["a1"]


def test_a_team_has_its_own_from_a_sibling_though_their_organisation_has_too_much() -> None:
    """It has no more by it than before: what it has too much is for those outside to take."""
    made = stage({"n1": 8, "n2": 8})
    made.queues(team("org"), team("a", parent="org"), team("b", parent="org"), team("c"))
    for number, node in enumerate(("n1", "n1", "n2")):
        made.running(f"a{number}", {node: 4}, team="a")
    made.running("c1", {"n2": 4}, team="c")
    made.hour()
    made.waiting("c2", 4, team="c")

    (victim,) = made.victims(made.waiting("b1", 4, team="b"))
    assert victim.startswith("a")


def test_where_an_organisation_has_its_share_a_team_takes_from_a_sibling_and_not_from_who_is_cheapest() -> None:
    """Others have too much as well and lose less; with what they have the organisation would be beyond its share."""
    made = stage({"n1": 8, "n2": 8})
    made.queues(team("org", weight=2), team("a", parent="org"), team("b", parent="org"), team("c"), team("d"))
    for name, node in (("a1", "n1"), ("a2", "n1"), ("c1", "n2"), ("c2", "n2")):
        made.running(name, {node: 4}, team=name[0])
    made.hour()
    for name in ("c1", "c2"):
        made.save(name)
    made.wait(60)
    made.waiting("d1", 4, team="d")

    assert made.victims(JobId("d1")) == ["c1"]
    assert made.victims(made.waiting("b1", 4, team="b")) == ["a1"]


@given(st.data())
def test_without_a_change_from_outside_evictions_come_to_rest(data: st.DataObject) -> None:
    """No cap, no cool-down, no minimum: teams ask for more than there is, runs never end by themselves, and it settles.

    Nobody is stopped twice: who was stopped had too much, or was the least urgent, and still is.
    """
    made = stage({f"n{number}": 4 for number in range(4)}, evictions_max=99)
    made.queues(*(team(name, weight=data.draw(st.integers(1, 3))) for name in "abc"))
    for number in range(data.draw(st.integers(1, 12))):
        made.submit(
            f"j{number:02d}",
            data.draw(st.sampled_from((1, 2, 4, 8))),
            team=data.draw(st.sampled_from("abc")),
            priority=data.draw(st.sampled_from((Priority.LOW, Priority.NORMAL, Priority.HIGH))),
            min_gpus=data.draw(st.sampled_from((0, 0, 1))),  # elastic gangs too take from each other only so often
        )
        if data.draw(st.booleans()):
            obey(made)
    for _ in range(30):
        if not obey(made):
            break
    else:
        raise AssertionError(f"never at rest: {made.cluster.runs}")

    assert all(job.evictions <= len(made.cluster.jobs) for job in made.cluster.jobs.values())
    made.assert_sound()


def obey(made: Stage) -> int:
    """Rounds decide, and agents stop at once what was told to: so many victims were named."""
    named = sum(len(event.victims) for event in made.rounds() if isinstance(event, GpusEarmarked))
    for run in sorted(made.cluster.runs.values(), key=lambda run: run.run_id):
        if run.stopping is not None:
            made.end(run.job_id, reason=EndReason.STOPPED)
            made.release(run.job_id)
    made.hour()
    return named


def test_two_preemptors_of_one_round_never_count_on_the_same_victim() -> None:
    """Each run ends for one job: the second finds another, or none."""
    made = stage({"n1": 8, "n2": 8})
    made.running("one", {"n1": 8}, **LOW)
    made.running("two", {"n2": 8}, **LOW)
    made.hour()
    jobs = [made.waiting(f"new{number}", 8, **HIGH) for number in range(3)]
    scene = made.scene()
    chosen: list[Preemption | None] = []
    for job in jobs:
        if (found := made.ask(job, scene)) is not None:
            scene.evicted.update(found.victims)
            scene.room.reserve(found.shares)
        chosen.append(found)

    assert chosen[2] is None
    taken = [run_id for found in chosen[:2] if found is not None for run_id in found.victims]
    assert sorted(taken) == ["one-1", "two-1"]


def test_a_whole_node_is_had_by_floor_though_no_node_holds_just_what_others_have_too_much() -> None:
    """Weights 5:3:2 on eight full nodes: of eight that are due, five are too much of one team's, three of another's."""
    stage = Stage({f"n{number}": 8 for number in range(8)})
    stage.policy(min_runtime_s=0)
    stage.queues(team("a", weight=5), team("b", weight=3), team("c", weight=2))
    for number in range(64):
        whose = "a" if number < 40 else "b"
        stage.running(f"{whose}{number}", {f"n{number // 8}": 1}, team=whose)
    due = stage.waiting("due", 8, team="c")
    victims = stage.victims(due)

    assert len(victims) == 8
    assert {name[0] for name in victims} == {"a"}, "down to its floor of 32"
    assert stage.victims(stage.waiting("larger", 16, team="c")) == [], "its floor is 13"
