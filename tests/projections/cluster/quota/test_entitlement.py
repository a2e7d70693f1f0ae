"""What teams may claim, by table: shares, types, teams that come and go, what counts as used, the fair order."""

from typing import Any

import pytest

from events.base import JobId, TeamId
from events.job import GpusEarmarked, Priority
from events.queues import QueueStop
from projections.cluster.job import PRIORITY_RANK
from projections.cluster.quota.bounds import Request
from projections.cluster.quota.entitlement import Standing
from projections.cluster.quota.shares import UNBOUNDED
from projections.cluster.snapshot import dump, load
from tests.clusters import World
from tests.projections.cluster.quota.asking import A100, H100, asking, entitled, floors, queue, standing

NORMAL = PRIORITY_RANK[Priority.NORMAL]


# Shares


def test_entitlements_are_told_of_every_queue_with_all_below_it() -> None:
    """By type, without those that may claim nothing; a queue's own jobs count in it and are no queue beside it."""
    world = asking(12, queue("lab"), queue("red", "lab"), queue("idle"), lab=2, red=3, alone=1)
    assert standing(world).entitlements() == {"alone": {H100: 1}, "lab": {H100: 5}, "red": {H100: 3}}


@pytest.mark.parametrize(
    ("wanted", "shares"),
    [
        ({"a": 20_000, "b": 20_000, "c": 20_000}, [5_000, 3_000, 2_000]),
        ({"a": 20_000, "b": 20_000}, [6_250, 3_750, 0]),
        ({"a": 20_000, "b": 20_000, "c": 100}, [6_188, 3_712, 100]),
        ({"c": 9_000}, [0, 0, 9_000]),
        ({"a": 1, "b": 2, "c": 3}, [1, 2, 3]),
    ],
)
def test_weights_5_3_2_share_what_is_wanted_of_10_000(wanted: dict[str, int], shares: list[int]) -> None:
    """Floors of 5,000, 3,000 and 2,000; what one of them does not want the others get by weight."""
    world = asking(10_000, queue("a", weight=5), queue("b", weight=3), queue("c", weight=2), **wanted)

    assert entitled(world, "a", "b", "c") == shares
    assert floors(world, "a", "b", "c") == [5_000, 3_000, 2_000]


def test_a_team_that_comes_back_is_entitled_to_its_own_at_once() -> None:
    """Although others run on it: what they have too much is told, in GPUs."""
    world = asking(10, queue("a", weight=5), queue("b", weight=3), queue("c", weight=2))
    world.put(world.submit("runs", 6, team="a"), n0000=6)
    world.put(world.submit("too", 4, team="b"), n0000=4)
    assert entitled(world, "a", "b") == [6, 4]

    world.submit("back", 2, team="c")
    world.submit("more", 2, team="a")
    now = standing(world)

    assert entitled(world, "a", "b", "c") == [5, 3, 2]
    assert [now.over(TeamId(team), H100, TeamId("c")) for team in "abc"] == [1, 1, 0]
    assert now.within(TeamId("c"), H100, 2, rank=NORMAL)
    assert not now.within(TeamId("c"), H100, 3, rank=NORMAL)


def test_each_level_shares_out_what_the_one_above_it_has() -> None:
    """Weights count among siblings; two teams of a small organisation do not get twice what one of a large one does."""
    world = asking(
        12, queue("org"), queue("lab", weight=2), queue("x", "org"), queue("y", "org"), queue("z", "lab"),
        x=20, y=20, z=20,
    )  # fmt: skip

    assert entitled(world, "x", "y", "z") == [2, 2, 8]


def test_what_a_sibling_leaves_stays_in_the_organisation_first() -> None:
    """Its floor is the organisation's, which lends it to others only when none of its own wants it."""
    world = asking(12, queue("org"), queue("x", "org"), queue("y", "org"), queue("z"), x=20, z=20)

    assert entitled(world, "x", "z") == [6, 6]


def test_the_jobs_of_an_organisation_itself_are_one_more_child_of_it() -> None:
    """Of weight 1."""
    world = asking(12, queue("org"), queue("x", "org", weight=2), org=20, x=20)

    assert entitled(world, "org", "x") == [4, 8]


def test_of_equals_the_first_by_name_gets_the_odd_one() -> None:
    """Whatever order they came in, or the document has."""
    ways = [asking(5, *map(queue, names), **dict.fromkeys(names, 9)) for names in (("a", "b"), ("b", "a"))]

    assert [entitled(world, "a", "b") for world in ways] == [[3, 2], [3, 2]]


def test_use_counts_like_what_is_wanted() -> None:
    """A team is never entitled to less than it has because it wants no more."""
    world = asking(10, queue("a"), queue("b"), b=20)
    world.put(world.submit("runs", 4, team="a"), n0000=4)

    assert entitled(world, "a", "b") == [4, 6]


def test_a_team_alone_is_within_whatever_it_asks_for() -> None:
    """Nobody has a claim beside it, so nothing is counted against it."""
    world = World({"n1": 8})
    world.submit("large", 80)
    now = standing(world)

    assert now.sole
    assert now.within(TeamId("t"), H100, 80, rank=NORMAL)
    assert now.blocked(Request(TeamId("t"), (), 80, preemptible=False)) is None
    assert now.headroom(TeamId("t"), H100) == UNBOUNDED


# Types


def test_scarce_types_have_their_own_line() -> None:
    """Whoever has much of one type may have its part of another."""
    world = asking(10, queue("a"), queue("b"))
    world.join("m1", 4, gpu_type=A100)
    world.put(world.submit("runs", 10, team="a", gpu_types=(H100,)), n0000=10)
    world.submit("wants", 4, team="a", gpu_types=(A100,))
    world.submit("too", 4, team="b", gpu_types=(A100,))

    assert entitled(world, "a", "b", gpu_type=A100) == [2, 2]


def test_a_job_counts_for_the_first_type_that_the_cluster_has() -> None:
    """One that accepts any for that of which there is most."""
    world = asking(10)
    world.join("m1", 4, gpu_type=A100)
    now = standing(world)

    assert [now.wants(t) for t in ((), ("b200", A100), (H100, A100), ("b200",))] == [H100, A100, H100, ""]


def test_a_floor_in_a_type_that_no_node_has_is_none() -> None:
    """Until one has: it takes nothing from others, and nobody falls over it."""
    world = asking(10, queue("a", gpu_type="b200", floor=50), queue("b"), a=20, b=20)

    assert floors(world, "a", gpu_type="b200") == [0]
    assert entitled(world, "a", gpu_type="b200") == [0]
    assert entitled(world, "a", "b") == [5, 5]


# Teams that come and go


def test_a_team_that_is_no_queue_stands_at_the_root_with_weight_1() -> None:
    """As long as it has jobs."""
    world = asking(9, queue("a", weight=2), queue("idle", floor=0), a=20, new=20)

    assert entitled(world, "a", "new") == [6, 3]


def test_a_queue_that_is_taken_out_while_it_has_jobs_is_a_team_like_any_other() -> None:
    """Its jobs run on and count; its bounds are gone."""
    world = asking(10, queue("a", limit=2), queue("b"), a=20, b=20)
    world.put(world.submit("runs", 2, team="a"), n0000=2)

    world.queues(queue("b"))

    assert entitled(world, "a", "b") == [5, 5]
    assert standing(world).used(TeamId("a"), H100) == 2


def test_without_queues_teams_share_equally() -> None:
    """Nobody wrote a document yet."""
    assert entitled(asking(10, a=20, b=20), "a", "b") == [5, 5]


# What counts as used


def earmarked(world: World, job_id: str, victim: str) -> None:
    """The job is to have the GPUs of a run."""
    run = world.run(JobId(victim))
    job = world.cluster.jobs[JobId(job_id)]
    assert run is not None
    ids = {"at": world.at, "team": job.team, "job_id": job.job_id}
    world.add(GpusEarmarked(**ids, shares=run.shares, victims=(run.run_id,)))  # type: ignore[arg-type]


def test_what_is_set_aside_is_the_preemptors_and_no_more_the_victims() -> None:
    """For entitlements; for limits the victim's counts until it is given back. Neither is wanted once more."""
    world = asking(8, queue("a", weight=3), queue("b", limit=4), c=20)
    world.put(world.submit("victim", 4, team="b"), n0000=4)
    world.submit("wants", 4, team="a")
    earmarked(world, "wants", "victim")
    now = standing(world)

    assert [now.used(TeamId(team), H100) for team in "ab"] == [4, 0]
    assert entitled(world, "a", "b", "c") == [4, 0, 4]
    assert now.headroom(TeamId("b"), H100) == 0


def test_a_limit_below_what_runs_leaves_no_room_and_none_that_is_owed() -> None:
    """What is over a limit is no capacity for others."""
    world = asking(8, queue("org", limit=8), queue("a", "org"), queue("b", "org"))
    world.put(world.submit("runs", 6, team="a"), n0000=6)
    world.queues(queue("org", limit=8), queue("a", "org", limit=2), queue("b", "org"))
    now = standing(world)

    assert [now.headroom(TeamId(team), H100) for team in "ab"] == [0, 2]


@pytest.mark.parametrize("way", ["finish", "cancel", "lose", "hold"])
def test_every_way_out_gives_back_all_that_a_team_used(way: str) -> None:
    """Use is what live jobs have: no path can forget it."""
    knobs: dict[str, Any] = {"limit": 4, "running_max": 1}
    world = asking(8, queue("a", **knobs), queue("b"))
    job = world.put(world.submit("runs", 4, team="a", retries_infrastructure=0), n0000=4)
    match way:
        case "finish":
            world.finish(job)
        case "cancel":
            world.cancel(job)
        case "hold":
            world.queues(queue("a", stop=QueueStop.HOLD, **knobs), queue("b"))
        case _:
            world.join("n0000", 8)
    world.rounds()
    if world.run(job) is not None:
        world.end(job)
        world.release(job)
        world.rounds()
    world.queues(queue("a", **knobs), queue("b"))
    now = standing(world)

    assert (now.used(TeamId("a"), H100), now.headroom(TeamId("a"), H100)) == (0, 4)
    assert now.blocked(Request(TeamId("a"), (), 4, preemptible=True)) is None


def test_a_restart_knows_what_was_in_use() -> None:
    """From a snapshot as from the log, before anything is let in."""
    world = asking(8, queue("org", limit=6), queue("a", "org"), queue("b"), a=2, b=20)
    world.put(world.submit("runs", 4, team="a", preemptible=False), n0000=4)
    restored = load(dump(world.cluster), log_id=world.cluster.log_id)
    assert restored is not None
    ways = [Standing(cluster, world.at) for cluster in (world.cluster, restored)]

    one, other = (
        [(now.used(t, H100), now.entitled(t, H100), now.headroom(t, H100), now.least(t)) for t in map(TeamId, "ab")]
        for now in ways
    )
    assert one == other
    assert ways[1].headroom(TeamId("a"), H100) == 2


def test_impossible_and_cancelled_jobs_and_those_in_back_off_want_nothing() -> None:
    """Until their time has come."""
    world = asking(4, queue("a"), queue("b"), b=4)
    world.cancel(world.submit("gone", 4, team="a"))
    world.put(world.submit("failed", 4, team="a", retries_infrastructure=1), n0000=4)
    world.wait(5)
    world.join("n0000", 4)
    world.rounds()
    (failed,) = [job for job in world.cluster.jobs.values() if job.job_id == "failed"]
    assert failed.not_before is not None
    assert entitled(world, "a", "b") == [0, 4]

    world.wait(400)

    assert entitled(world, "a", "b") == [2, 2]


def test_what_a_round_takes_and_gives_counts_at_once() -> None:
    """At every level, for limits as well; entitlements stay as they were."""
    world = asking(10, queue("org", limit=8), queue("a", "org"), queue("b"), a=20, b=20)
    now, a = standing(world), TeamId("a")
    now.take(a, H100, 5, rank=NORMAL, preemptible=True)
    assert (now.used(a, H100), now.headroom(a, H100), now.within(a, H100, 1, rank=NORMAL)) == (5, 3, False)

    now.give(a, H100, 2, rank=NORMAL, preemptible=True)

    assert (now.used(a, H100), now.headroom(a, H100), now.within(a, H100, 2, rank=NORMAL)) == (3, 3, True)
    assert now.entitled(a, H100) == 5


def test_what_is_asked_for_the_first_time_late_in_a_round_is_answered_as_of_its_beginning() -> None:
    """Nothing that was taken meanwhile counts twice, as use and as what was wanted."""
    world = asking(10, queue("a"), queue("b"), a=2, b=20)
    now = standing(world)

    now.take(TeamId("a"), H100, 2, rank=NORMAL, preemptible=True)

    assert [now.entitled(TeamId(team), H100) for team in "ab"] == [2, 8]


def test_an_urgent_job_is_within_what_less_urgent_ones_of_its_team_could_give() -> None:
    """Not what cannot be preempted, and not what others of its organisation have."""
    world = asking(8, queue("a"), queue("b"), b=8)
    world.put(world.submit("mild", 2, team="a", priority=Priority.LOW), n0000=2)
    world.put(world.submit("firm", 2, team="a", priority=Priority.LOW, preemptible=False), n0000=2)
    world.submit("urgent", 4, team="a", priority=Priority.URGENT)
    now = standing(world)

    assert now.entitled(TeamId("a"), H100) == 4
    assert [now.within(TeamId("a"), H100, gpus, rank=0) for gpus in (2, 3)] == [True, False]
    assert not now.within(TeamId("a"), H100, 1, rank=PRIORITY_RANK[Priority.LOW])


def test_a_team_is_over_only_where_its_queues_are_too() -> None:
    """What a team of a poor organisation has too much is its siblings' affair; and a team is not over itself."""
    world = asking(12, queue("org"), queue("x", "org"), queue("y", "org"), queue("z"), y=6, z=12)
    world.put(world.submit("runs", 6, team="x"), n0000=6)
    now = standing(world)

    assert now.over(TeamId("x"), H100, TeamId("y")) == 3
    assert now.over(TeamId("x"), H100, TeamId("z")) == 0
    assert now.over(TeamId("x"), H100, TeamId("x")) == 0


def test_a_siblings_excess_keeps_nobody_from_its_own() -> None:
    """The queue above is full because of it: the team is entitled all the same, and within once that is given."""
    world = asking(6, queue("org"), queue("x", "org"), queue("y", "org"), y=6)
    world.put(world.submit("runs", 6, team="x"), n0000=6)
    now = standing(world)
    assert now.entitles(TeamId("y"), H100, 3, rank=NORMAL)
    assert not now.entitles(TeamId("y"), H100, 4, rank=NORMAL), "its share is 3"
    assert not now.within(TeamId("y"), H100, 3, rank=NORMAL)

    now.give(TeamId("x"), H100, 6, rank=NORMAL, preemptible=True)

    assert now.within(TeamId("y"), H100, 3, rank=NORMAL)


# The fair order


def test_the_team_with_the_least_per_weight_goes_first() -> None:
    """Compared from the top down: a team of a poor organisation comes before any of a rich one."""
    world = asking(20, queue("rich"), queue("poor"), queue("r", "rich"), queue("p", "poor"), queue("q", "poor"))
    world.put(world.submit("a", 8, team="rich"), n0000=8)
    world.put(world.submit("b", 4, team="p"), n0001=4)
    now = standing(world)

    assert sorted(("r", "p", "q", "rich"), key=lambda team: now.least(TeamId(team))) == ["q", "p", "r", "rich"]


def test_weight_0_goes_last() -> None:
    """However little it has."""
    world = asking(10, queue("a"), queue("z", weight=0))
    world.put(world.submit("runs", 9, team="a"), n0000=9)
    now = standing(world)

    assert now.least(TeamId("a")) < now.least(TeamId("z"))
