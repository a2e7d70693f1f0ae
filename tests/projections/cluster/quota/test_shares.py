"""Laws of sharing out, over trees, bounds and wishes drawn at random."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from events.base import JobId, TeamId
from events.queues import Bounds, Queue
from projections.cluster.quota.entitlement import Standing
from projections.cluster.quota.tree import ALL_TYPES, ROOT
from tests.clusters import World
from tests.queues import NAMES, TYPES, WISHES, Wishes, documents, world_of

LAW = settings(max_examples=60)


def teams_of(wishes: Wishes) -> list[TeamId]:
    """The teams that want something."""
    return [TeamId(team) for team in sorted({team for team, _, _ in wishes})]


def wanted_of(wishes: Wishes, team: str, gpu_type: str) -> int:
    """What a team wants of a type."""
    return sum(gpus for wisher, of_type, gpus in wishes if (wisher, of_type) == (team, gpu_type))


@LAW
@given(documents(), WISHES)
def test_no_more_is_promised_than_there_is_nor_than_is_wanted(queues: tuple[Queue, ...], wishes: Wishes) -> None:
    """At every level: what the children of a queue may claim, it may itself."""
    world = world_of(queues, wishes)
    standing = Standing(world.cluster, world.at)
    for gpu_type in TYPES:
        shares = standing._shares.entitled(gpu_type)
        assert shares[ROOT] == world.cluster.capacity[gpu_type]
        for parent, children in standing._shares.families().items():
            assert sum(shares[child] for child in children) <= shares[parent]
        for team in teams_of(wishes):
            assert 0 <= standing.entitled(team, gpu_type) <= wanted_of(wishes, team, gpu_type)


@LAW
@given(documents(("floor", "lending_limit")), WISHES)
def test_floors_come_first(queues: tuple[Queue, ...], wishes: Wishes) -> None:
    """Whatever the others want, a team that wants its floor has it."""
    world = world_of(queues, wishes)
    standing = Standing(world.cluster, world.at)
    for gpu_type in TYPES:
        for team in teams_of(wishes):
            sure = min(standing.floor(team, gpu_type), wanted_of(wishes, team, gpu_type))
            assert standing.entitled(team, gpu_type) >= sure


@LAW
@given(documents(), WISHES, WISHES)
def test_the_highest_floors_are_no_lower_than_those_of_any_wishes(
    queues: tuple[Queue, ...], wishes: Wishes, others: Wishes
) -> None:
    """And are the same for all wishes of the same teams."""
    idle = [(team, TYPES[0], 1) for team in (*NAMES, "f")]
    highest = []
    for some in (wishes, others):
        world = world_of(queues, [*some, *idle])
        shares = Standing(world.cluster, world.at)._shares
        highest.append({gpu_type: dict(shares.highest_floors(gpu_type)) for gpu_type in TYPES})
        for gpu_type in TYPES:
            for name, floor in shares.floors(gpu_type).items():
                assert floor <= highest[-1][gpu_type][name]
    assert highest[0] == highest[1]


@LAW
@given(documents(("floor",)), WISHES)
def test_nothing_that_is_wanted_stays_idle(queues: tuple[Queue, ...], wishes: Wishes) -> None:
    """Work conserving, where no bound forbids it."""
    world = world_of(queues, wishes)
    assume(wishes)
    standing = Standing(world.cluster, world.at)
    for gpu_type in TYPES:
        all_wanted = sum(wanted_of(wishes, team, gpu_type) for team in teams_of(wishes))
        given_out = sum(standing.entitled(team, gpu_type) for team in teams_of(wishes))
        assert given_out == min(all_wanted, world.cluster.capacity[gpu_type])


@LAW
@given(documents(), WISHES)
def test_no_queue_may_claim_more_than_its_limits(queues: tuple[Queue, ...], wishes: Wishes) -> None:
    """Of a type, and over all."""
    world = world_of(queues, wishes)
    shares = Standing(world.cluster, world.at)._shares
    for queue in queues:
        for bounds in queue.bounds:
            types = TYPES if bounds.gpu_type == ALL_TYPES else (bounds.gpu_type,)
            claimed = sum(shares.entitled(gpu_type)[queue.name] for gpu_type in types)
            assert bounds.limit is None or claimed <= bounds.limit


@LAW
@given(documents(("floor", "limit")), WISHES, st.sampled_from(NAMES), st.integers(1, 500))
def test_who_wants_more_takes_nothing_of_what_others_have_for_sure(
    queues: tuple[Queue, ...], wishes: Wishes, greedy: str, gpus: int
) -> None:
    """Monotone: asking for more than one gets harms nobody's floor."""
    world = world_of(queues, [*wishes, (greedy, "h100", gpus)])
    standing = Standing(world.cluster, world.at)
    before = Standing(world_of(queues, wishes).cluster, world.at)
    for team in teams_of(wishes):
        if team != greedy:
            sure = min(standing.floor(team, "h100"), before.entitled(team, "h100"))
            assert standing.entitled(team, "h100") >= sure


@LAW
@given(documents(), WISHES, st.randoms(use_true_random=False))
def test_the_order_of_names_in_the_log_changes_nothing(
    queues: tuple[Queue, ...], wishes: Wishes, random: object
) -> None:
    """The same teams that want the same get the same, whoever came first and wherever a queue stands in the document."""
    shuffled, mixed = list(queues), list(wishes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    ways = [world_of(queues, wishes), world_of(shuffled, mixed)]

    one, other = ([_said(world, team) for team in teams_of(wishes)] for world in ways)

    assert one == other


def _said(world: World, team: TeamId) -> list[tuple[int, int, int]]:
    standing = Standing(world.cluster, world.at)
    return [(standing.entitled(team, t), standing.floor(team, t), standing.headroom(team, t)) for t in TYPES]


def test_past_use_lowers_a_weight_until_it_is_forgotten() -> None:
    """One of two equal teams used all there was: the other gets all until they are even; after many half-lives, half."""
    world = World({"n1": 16})
    world.queues(Queue(name=TeamId("a")), Queue(name=TeamId("b")), Queue(name=TeamId("c"), weight=0))
    world.policy(half_life_s=600)
    world.put(world.submit("past", 16, team="a"), n1=16)
    world.wait(600)
    world.finish(JobId("past"))
    for team in "abc":
        world.submit(f"wants-{team}", 40, team=team)
    standing = Standing(world.cluster, world.at)
    weights = [standing._shares.weight(team) for team in "abc"]
    assert [standing.entitled(TeamId(team), "h100") for team in "abc"] == [8, 8, 0]  # floors are no matter of the past
    assert standing.least(TeamId("b")) < standing.least(TeamId("a")) <= standing.least(TeamId("c"))

    assert weights == [0, 1_000_000, 0]


def test_past_use_counts_where_floors_do_not() -> None:
    """Beyond the floors, what is lent goes to the one that used less."""
    world = World({"n1": 16})
    world.queues(*(Queue(name=TeamId(name), bounds=(Bounds(floor=0),)) for name in "ab"))
    world.policy(half_life_s=600)
    for name, gpus in (("a", 12), ("b", 4)):
        world.put(world.submit(f"past-{name}", gpus, team=name), n1=gpus)
    world.wait(600)
    for name in "ab":
        world.finish(JobId(f"past-{name}"))
    for name in "ab":
        world.submit(f"wants-{name}", 40, team=name)
    standing = Standing(world.cluster, world.at)

    assert [standing.entitled(TeamId(name), "h100") for name in "ab"] == [4, 12]
