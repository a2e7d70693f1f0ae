"""What teams may claim, by table: one test a knob, and one for each odd case that a document may hold."""

from typing import Any

import pytest

from events.base import JobId, TeamId
from events.job import GpusEarmarked, HoldCode, Priority
from events.queues import Bounds, Queue, QueueOrder, QueueStop
from projections.cluster.job import PRIORITY_RANK
from projections.cluster.quota.bounds import Block, Request
from projections.cluster.quota.entitlement import Standing
from projections.cluster.quota.shares import UNBOUNDED
from projections.cluster.snapshot import dump, load
from tests.clusters import World

NORMAL = PRIORITY_RANK[Priority.NORMAL]
H100, A100 = "h100", "a100"


def queue(name: str, parent: str = "", **knobs: object) -> Queue:
    """A queue; bounds of one type, or over all, by their names."""
    of_bounds = {key: knobs.pop(key) for key in list(knobs) if key in Bounds.__struct_fields__}
    bounds = (Bounds(**of_bounds),) if of_bounds else ()  # type: ignore[arg-type]
    return Queue(name=TeamId(name), parent=parent, **{"bounds": bounds, **knobs})  # type: ignore[arg-type]


def standing(world: World) -> Standing:
    """Where the teams stand now."""
    return Standing(world.cluster, world.at)


def asking(gpus: int, *queues: Queue, **wanted: int) -> World:
    """A cluster of one type with so many GPUs, in which teams want one-GPU gangs of one job each."""
    world = World({f"n{number:04d}": min(10, gpus - 10 * number) for number in range(-(-gpus // 10))})
    world.queues(*queues)
    for team, number in wanted.items():
        world.submit(f"wants-{team}", number, team=team, gpu_types=(H100,))
    return world


def entitled(world: World, *teams: str, gpu_type: str = H100) -> list[int]:
    """What teams may claim."""
    now = standing(world)
    return [now.entitled(TeamId(team), gpu_type) for team in teams]


def floors(world: World, *teams: str, gpu_type: str = H100) -> list[int]:
    """What teams have for sure."""
    now = standing(world)
    return [now.floor(TeamId(team), gpu_type) for team in teams]


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


# Knobs, one by one


def test_weight_0_gets_what_none_of_the_others_wants() -> None:
    """And all of that."""
    queues = queue("a"), queue("z", weight=0)

    assert entitled(asking(10, *queues, a=20, z=20), "a", "z") == [10, 0]
    assert entitled(asking(10, *queues, a=4, z=20), "a", "z") == [4, 6]


def test_all_weights_0_share_equally() -> None:
    """A document in which nobody counts is no reason to leave GPUs idle."""
    assert entitled(asking(10, queue("a", weight=0), queue("b", weight=0), a=20, b=20), "a", "b") == [5, 5]


def test_floor_comes_first_and_weight_shares_the_rest() -> None:
    """Without a floor the weight's part is the floor, as far as the floors of others leave it."""
    queues = queue("a", floor=6), queue("b"), queue("c")

    assert entitled(asking(12, *queues, a=20, b=20, c=20), "a", "b", "c") == [6, 3, 3]
    assert entitled(asking(12, *queues, b=20, c=20), "a", "b", "c") == [0, 6, 6]


def test_floor_0_is_none_for_sure_and_no_floor_is_the_weights_part() -> None:
    """0 is a number."""
    assert floors(asking(10, queue("a", floor=0), queue("b"), a=1, b=1), "a", "b") == [0, 5]


def test_floors_beyond_the_capacity_are_scaled() -> None:
    """In proportion, in whole GPUs: an outage hits all alike."""
    world = asking(9, queue("a", floor=12), queue("b", floor=6), queue("c"), a=20, b=20, c=20)

    assert entitled(world, "a", "b", "c") == [6, 3, 0]


def test_limit_bounds_what_a_team_may_claim() -> None:
    """What is beyond it is the others', also where they are elsewhere in the tree."""
    world = asking(10, queue("org", limit=6), queue("a", "org"), queue("b", "org"), queue("c"), a=20, b=20, c=20)

    assert entitled(world, "a", "b", "c") == [3, 2, 5]
    assert entitled(asking(10, queue("a", limit=2), queue("c"), a=20, c=20), "a", "c") == [2, 8]


def test_a_missing_limit_is_none_and_a_limit_of_0_lets_nothing_in() -> None:
    """In that order."""
    world = asking(10, queue("a"), queue("b", limit=0), a=20, b=20)
    now = standing(world)

    assert now.blocked(Request(TeamId("a"), (), 10, preemptible=True)) is None
    assert now.headroom(TeamId("a"), H100) == UNBOUNDED
    assert now.blocked(Request(TeamId("b"), (), 1, preemptible=True)) == Block(HoldCode.EXCEEDS_LIMIT, "b", 0, 0)
    assert now.headroom(TeamId("b"), H100) == 0
    assert entitled(world, "a", "b") == [10, 0]


def test_limit_over_all_types_counts_them_together() -> None:
    """And is spent on the types by name."""
    world = asking(10, queue("a", limit=6), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    world.submit("one", 4, team="a", gpu_types=(A100,))
    world.submit("two", 4, team="a", gpu_types=(H100,))

    assert entitled(world, "a", gpu_type=A100) == [4]
    assert entitled(world, "a") == [2]
    world.put(JobId("one"), m1=4)
    now = standing(world)
    assert now.headroom(TeamId("a"), H100) == 2
    assert now.blocked(Request(TeamId("a"), (H100,), 4, preemptible=True)) == Block(HoldCode.OVER_LIMIT, "a", 6, 4)


def test_limit_of_one_type_leaves_the_others_open() -> None:
    """A job that accepts both may take the other."""
    world = asking(10, queue("a", gpu_type=H100, limit=0), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    now = standing(world)

    assert now.open_types(TeamId("a"), (), 4, preemptible=True) == (A100,)
    assert now.blocked(Request(TeamId("a"), (H100, A100), 4, preemptible=True)) is None
    assert now.blocked(Request(TeamId("a"), (H100,), 4, preemptible=True)) is not None


def test_borrowing_limit_bounds_what_is_beyond_the_floor() -> None:
    """Missing: no bound; 0: nothing beyond it."""
    cases = {None: 20, 0: 5, 3: 8}
    for most, share in cases.items():
        world = asking(20, queue("a", floor=5, borrowing_limit=most), queue("b"), a=40)
        assert entitled(world, "a") == [share], most
        assert standing(world).headroom(TeamId("a"), H100) == (UNBOUNDED if most is None else share)


def test_borrowing_limit_over_all_types_is_beyond_all_floors() -> None:
    """Where no floor is set over all, the floors of the types count."""
    world = asking(10, queue("a", borrowing_limit=2), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    for number, gpu_type in enumerate((A100, H100)):
        world.submit(f"j{number}", 9, team="a", gpu_types=(gpu_type,))

    assert entitled(world, "a", gpu_type=A100) + entitled(world, "a") == [9, 3]


def test_lending_limit_bounds_what_others_get_of_an_idle_floor() -> None:
    """Missing: all of it; 0: none."""
    cases = {None: 20, 0: 12, 3: 15}
    for most, share in cases.items():
        world = asking(20, queue("a", floor=8, lending_limit=most), queue("b"), b=40)
        assert entitled(world, "b") == [share], most


def test_what_a_sibling_keeps_for_itself_is_not_at_the_cost_of_anybodys_floor() -> None:
    """Their organisation wants less than its floor: it has what they want, and `idle` keeps nothing of that."""
    lab = (queue("lab", floor=6), queue("idle", "lab", floor=3, lending_limit=0), queue("busy", "lab", floor=3))
    world = asking(12, *lab, queue("c"), busy=3, c=40)
    assert entitled(world, "busy", "c") == [3, 9]

    assert entitled(asking(12, *lab, queue("c"), busy=9, c=40), "busy") == [3]


def test_lending_limit_of_a_floor_over_all_types_holds_too() -> None:
    """The floor is laid on the types by name, first where it is wanted; what is not lent of it stays there."""
    world = asking(10, queue("a", floor=12, lending_limit=0), queue("b"), b=40)
    world.join("m1", 10, gpu_type=A100)
    world.submit("more", 40, team="b", gpu_types=(A100,))

    assert entitled(world, "b", gpu_type=A100) + entitled(world, "b") == [0, 8]


def test_lending_limit_over_all_types_is_spent_on_them_by_name() -> None:
    """Where each type has a floor of its own."""
    floors_of = (Bounds(gpu_type=A100, floor=8), Bounds(gpu_type=H100, floor=8), Bounds(lending_limit=3))
    world = asking(10, Queue(name=TeamId("a"), bounds=floors_of), queue("b"), b=40)
    world.join("m1", 10, gpu_type=A100)
    world.submit("more", 40, team="b", gpu_types=(A100,))

    assert entitled(world, "b", gpu_type=A100) + entitled(world, "b") == [5, 2]


def test_a_floor_over_all_types_is_spent_where_it_is_wanted() -> None:
    """On the first type by name, then on the next."""
    world = asking(10, queue("a", floor=12), queue("b"), a=8, b=40)
    world.join("m1", 10, gpu_type=A100)
    world.submit("other", 6, team="a", gpu_types=(A100,))
    world.submit("more", 40, team="b", gpu_types=(A100,))

    assert floors(world, "a", gpu_type=A100) + floors(world, "a") == [6, 6]
    assert entitled(world, "b", gpu_type=A100) + entitled(world, "b") == [4, 4]


def test_running_max_bounds_jobs_and_not_gpus() -> None:
    """Missing: no bound; 0: none may run. At every level."""
    world = asking(10, queue("org", running_max=1), queue("a", "org"), queue("b", "org"), queue("c", running_max=0))
    assert standing(world).blocked(Request(TeamId("b"), (), 9, preemptible=True)) is None

    world.put(world.submit("runs", 1, team="a"), n0000=1)
    now = standing(world)

    assert now.blocked(Request(TeamId("b"), (), 1, preemptible=True)) == Block(HoldCode.RUNNING_MAX, "org", 1, 1)
    assert now.blocked(Request(TeamId("c"), (), 1, preemptible=True)) == Block(HoldCode.RUNNING_MAX, "c", 0, 0)


@pytest.mark.parametrize("stop", [QueueStop.PAUSE, QueueStop.HOLD])
def test_a_stopped_queue_wants_nothing_and_lets_nothing_in(stop: QueueStop) -> None:
    """Nor do those below it; what runs of it counts on."""
    world = asking(10, queue("org", stop=stop), queue("a", "org"), queue("b"), a=20, b=20)
    world.put(world.submit("runs", 2, team="a"), n0000=2)

    assert entitled(world, "a", "b") == [2, 8]
    assert standing(world).blocked(Request(TeamId("a"), (), 1, preemptible=True)) == Block(
        HoldCode.QUEUE_PAUSED, "org", 0, 0
    )


def test_strict_is_said_of_the_queue_that_is() -> None:
    """And of no team without a queue."""
    now = standing(asking(1, queue("a", order=QueueOrder.STRICT), queue("b")))

    assert [now.strict(TeamId(team)) for team in ("a", "b", "nobody")] == [True, False, False]


def test_what_cannot_be_preempted_stays_within_the_floor_at_every_level() -> None:
    """Else what a team has for sure could not be given back to it."""
    world = asking(12, queue("org"), queue("a", "org"), queue("b", "org"), queue("c"), a=1, b=1, c=1)
    world.put(world.submit("firm", 2, team="a", preemptible=False), n0000=2)
    now = standing(world)

    assert now.blocked(Request(TeamId("a"), (), 1, preemptible=False)) is None
    assert now.blocked(Request(TeamId("a"), (), 2, preemptible=False)) == Block(HoldCode.OVER_FLOOR, "a", 3, 2)
    assert now.blocked(Request(TeamId("a"), (), 4, preemptible=False)) == Block(HoldCode.EXCEEDS_FLOOR, "a", 3, 2)
    assert now.blocked(Request(TeamId("a"), (), 4, preemptible=True)) is None


def test_a_floor_over_all_types_is_not_spent_twice_by_what_cannot_be_preempted() -> None:
    """It counts over all types together, wherever it was laid first."""
    world = asking(10, queue("a", floor=8), queue("b"))
    world.join("m1", 10, gpu_type=A100)
    world.put(world.submit("firm", 8, team="a", gpu_types=(H100,), preemptible=False), n0000=8)

    assert standing(world).blocked(Request(TeamId("a"), (A100,), 1, preemptible=False)) == Block(
        HoldCode.OVER_FLOOR, "a", 8, 8
    )


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
