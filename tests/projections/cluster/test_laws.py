"""Laws of the fold and of the rounds over random histories, each held to books of its own."""

from collections import Counter
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from events.base import NodeEpoch, NodeId, Recorded, RunId
from events.fleet import NodeLost
from events.job import JobPlaced
from events.node import GpusReleased, NodeJoined
from projections.cluster.audit.audit import audit
from projections.cluster.evolve import evolve
from projections.cluster.index import asks_for_decision, kind_of, use_of
from projections.cluster.job import WANT_NOTHING, JobState
from projections.cluster.node import NOWHERE, NodeState, Pool, Spare, Whole
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster, Use, Want
from services.control.round import decide_all
from tests.histories import History, fold, histories, history

Gpu = tuple[NodeId, NodeEpoch, int]


def slots(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def holders(cluster: Cluster) -> dict[Gpu, RunId]:
    """Who holds which GPU, by the fold."""
    return {
        (node.node_id, node.epoch, slot): run_id
        for node in cluster.nodes.values()
        for run_id, mask in node.held.items()
        for slot in slots(mask)
    }


def owners(records: list[Recorded]) -> dict[Gpu, RunId]:
    """Who owns which GPU, by the events alone; asserts on the way that none is given twice."""
    epochs: dict[NodeId, NodeEpoch] = {}
    owned: dict[Gpu, RunId] = {}
    for recorded in records:
        match recorded.event:
            case NodeJoined() as e:
                epochs[e.node_id] = NodeEpoch(recorded.position)
            case NodeLost() as e if epochs.get(e.node_id) == e.node_epoch:
                del epochs[e.node_id]
            case JobPlaced() as e:
                granted = [(s.node_id, s.node_epoch, slot) for s in e.shares for slot in slots(s.slots)]
                granted = [gpu for gpu in granted if epochs.get(gpu[0]) == gpu[1]]
                assert owned.keys().isdisjoint(granted)
                owned.update(dict.fromkeys(granted, e.run_id))
            case GpusReleased() as e:
                for slot in slots(e.slots):
                    if owned.get((e.node_id, e.node_epoch, slot)) == e.run_id:
                        del owned[e.node_id, e.node_epoch, slot]
            case _:
                pass
        owned = {gpu: run_id for gpu, run_id in owned.items() if epochs.get(gpu[0]) == gpu[1]}
    return owned


@given(histories())
def test_a_gpu_has_one_owner_until_its_own_release(grown: History) -> None:
    """Conservation: rounds grant no GPU twice and lose none, by the log's own count."""
    grown.round()

    assert holders(grown.cluster) == owners(grown.records)


@given(histories())
def test_the_auditor_finds_nothing_in_what_rounds_decide(grown: History) -> None:
    """No partial gang, nothing after an end, every GPU released by its run, one leader, contiguous."""
    grown.settle()

    assert audit(grown.records) == []
    assert not grown.cluster.unread  # nothing that was decided contradicted anything


@given(histories())
def test_every_run_ends_and_every_gpu_comes_back(grown: History) -> None:
    """Nothing leaks: once all agents have spoken, no run is left and every GPU of a living node is free or not found."""
    grown.settle()

    assert not grown.cluster.runs
    assert not holders(grown.cluster)
    assert all(job.state is not JobState.PLACED for job in grown.cluster.jobs.values())


@given(histories())
def test_a_round_with_nothing_new_decides_nothing(grown: History) -> None:
    """Idempotence: a leader that restarts or wakes early does not repeat itself."""
    cluster, tick = grown.cluster, grown.tick()
    for _ in range(20):  # a round is bounded: a few may be needed
        decided = decide_all(cluster, tick)
        cluster = reduce(evolve, map(tick.decided, decided), cluster)
        if not decided:
            break

    assert decide_all(cluster, tick) == []


@given(histories())
def test_deciding_leaves_the_cluster_as_it_was_and_is_the_same_twice(grown: History) -> None:
    """Purity: what was given is not touched, and the same input gives the same output."""
    before = dump(grown.cluster)
    first = decide_all(grown.cluster, grown.tick())

    assert decide_all(grown.cluster, grown.tick()) == first
    assert dump(grown.cluster) == before


@given(histories(), st.data())
def test_a_snapshot_and_the_tail_give_the_same_as_the_whole(grown: History, data: st.DataObject) -> None:
    """fold(snapshot + tail) = fold(all), at any place."""
    cut = data.draw(st.integers(0, len(grown.records)))
    begun = fold(grown.records[:cut])
    restored = load(dump(begun), log_id=begun.log_id)
    assert restored is not None

    whole = fold(grown.records[cut:], restored)

    assert dump(whole) == dump(grown.cluster)
    assert decide_all(whole, grown.tick()) == decide_all(grown.cluster, grown.tick())
    assert indexes(whole) == indexes(grown.cluster)


@given(histories(120), st.data())
def test_every_prefix_folds(grown: History, data: st.DataObject) -> None:
    """Any prefix of the log is a state that a round can decide on."""
    prefix = fold(grown.records[: data.draw(st.integers(0, len(grown.records)))])

    decide_all(prefix, grown.tick())


@given(histories())
def test_a_fork_answers_as_the_cluster_would(grown: History) -> None:
    """What happens on a fork is what happens on the cluster, and the cluster sees nothing of it."""
    before, indexed = dump(grown.cluster), indexes(grown.cluster)
    decided = decide_all(grown.cluster, grown.tick())
    fork = reduce(evolve, map(grown.tick().decided, decided), grown.cluster.fork())
    again = reduce(evolve, map(grown.tick().decided, decided), grown.cluster.fork().fork())

    assert (dump(grown.cluster), indexes(grown.cluster)) == (before, indexed)
    assert dump(again) == dump(fork)
    assert indexes(again) == indexes(fork)
    owned = reduce(evolve, map(grown.tick().decided, decided), fold(grown.records))
    assert dump(owned) == dump(fork)
    assert indexes(owned) == indexes(fork)


@given(histories())
def test_indexes_say_what_the_things_say(grown: History) -> None:
    """Lines, buckets, counts and the lists of what asks for a decision follow from nodes, jobs and runs."""
    cluster = grown.cluster
    up = [node for node in cluster.nodes.values() if node.state is NodeState.UP and node.spare and not node.closed]
    pools = {(Pool(n.gpu_type, n.size, n.spare.bit_count(), n.traits), n.node_id) for n in up}
    assert {(pool, name) for pool in cluster.pools.groups() for name in cluster.pools.names(pool)} == pools
    whole = {(Whole(n.gpu_type, n.size, n.traits, n.place), n.node_id) for n in up if n.spare.bit_count() == n.size}
    assert {(group, name) for group in cluster.whole.groups() for name in cluster.whole.names(group)} == whole
    spares: Counter[Spare] = Counter()
    for node in up:
        if node.place != NOWHERE:
            spares[Spare(node.gpu_type, node.traits, node.place)] += node.spare.bit_count()
    assert dict(cluster.spares) == dict(spares)
    places = {(node.place, node.node_id) for node in cluster.nodes.values()}
    assert {(place, name) for place in cluster.places.groups() for name in cluster.places.names(place)} == places
    assert set(cluster.cases) == {node.node_id for node in cluster.nodes.values() if node.asks}
    sizes = Counter(kind_of(node) for node in cluster.nodes.values())
    assert dict(cluster.sizes) == dict(sizes)
    runs = {r: cluster.tree.on_hold(r.team) for r in cluster.runs.values()}
    asking = {r.run_id for r, held in runs.items() if asks_for_decision(r, cluster.jobs[r.job_id], on_hold=held)}
    assert set(cluster.attention) == asking
    used: Counter[Use] = Counter()
    leaving: Counter[Use] = Counter()
    staying: Counter[Use] = Counter()
    for run in cluster.runs.values():
        used[use_of(run)] += run.gpus
        leaving[use_of(run)] += run.gpus if run.evicted_for else 0
        staying[use_of(run)] += not run.evicted_for
    assert dict(cluster.usage) == dict(used)
    assert dict(cluster.teams) == dict(Counter(r.team for r in runs for _ in range(r.gpus)))
    assert dict(cluster.leaving) == {use: gpus for use, gpus in leaving.items() if gpus}
    assert dict(cluster.staying) == {use: runs for use, runs in staying.items() if runs}
    capacity: Counter[str] = Counter()
    for node in cluster.nodes.values():
        idle = node.free if node.closed else node.free & node.sick
        capacity[node.gpu_type] += (node.pool & ~idle).bit_count()
    assert dict(cluster.capacity) == {gpu_type: gpus for gpu_type, gpus in capacity.items() if gpus}
    assert dict(cluster.wanted) == wanted(cluster)
    waiting = {j.job_id for j in cluster.jobs.values() if j.state is JobState.ADMITTED}
    assert {job_id for shape in cluster.admitted.groups() for _, job_id in cluster.admitted.line(shape)} == waiting
    short = {(cluster.jobs[j].shape, cluster.jobs[j].spec.max_runtime_s, j) for j in waiting}
    shortest = [(shape, key[0], j) for shape in cluster.shortest.groups() for key, j in cluster.shortest.line(shape)]
    assert set(shortest) == {(shape, runtime_s, j) for shape, runtime_s, j in short if runtime_s}
    ends = [(t, key[0], r) for t in cluster.ends.groups() for key, r in cluster.ends.line(t)]
    assert set(ends) == {(r.gpu_type, r.end.timestamp(), r.run_id) for r in runs if r.end is not None}


def wanted(cluster: Cluster) -> dict[Want, int]:
    """The GPUs that waiting jobs ask for, counted one by one; without those in back-off, cancelled, impossible, or not to be paid for."""
    wants: Counter[Want] = Counter()
    for job in cluster.jobs.values():
        if job.state is JobState.PLACED or job.not_before or job.cancel or job.hold in WANT_NOTHING:
            continue
        wants[Want(job.team, job.shape.gpu_types)] += job.spec.gpus
    return dict(wants)


def indexes(cluster: Cluster) -> dict[str, object]:
    """All that can be looked through, in a form that compares."""
    return {
        "queue": {group: list(cluster.queue.line(group)) for group in cluster.queue.groups()},
        "admitted": {group: list(cluster.admitted.line(group)) for group in cluster.admitted.groups()},
        "counts": {group: cluster.admitted.count(group) for group in cluster.admitted.groups()},
        "pools": {pool: cluster.pools.names(pool) for pool in cluster.pools.groups()},
        "whole": {group: cluster.whole.names(group) for group in cluster.whole.groups()},
        "places": {place: cluster.places.names(place) for place in cluster.places.groups()},
        "spares": dict(cluster.spares),
        "sizes": dict(cluster.sizes),
        "unpaid": {purse: list(cluster.unpaid.line(purse)) for purse in cluster.unpaid.groups()},
        "later": list(cluster.later.line(None)),
        "shortest": {shape: list(cluster.shortest.line(shape)) for shape in cluster.shortest.groups()},
        "ends": {gpu_type: list(cluster.ends.line(gpu_type)) for gpu_type in cluster.ends.groups()},
        "shares": [
            dict(cluster.capacity),
            dict(cluster.usage),
            dict(cluster.leaving),
            dict(cluster.staying),
            dict(cluster.wanted),
            dict(cluster.tallies),
            dict(cluster.teams),
        ],
        "asking": (set(cluster.attention), set(cluster.unwanted), set(cluster.suspects), set(cluster.cases)),
    }


def test_histories_hold_what_the_laws_are_about() -> None:
    """A law proves nothing over histories in which nothing happens: late and foreign releases, losses, requeues occur."""
    kinds: Counter[str] = Counter()
    for seed in (*range(40), 50):  # moves are seldom proposed: there they are
        grown = history(seed, 250)
        kinds += grown.kinds

    rare = {"JobTimedOut", "NodeRecovered", "JobCancelled", "RunStopping", "NodeLost", "JobRequeued", "JobFailed"}
    ends = {"JobSucceeded", "GpusReleased", "JobHeld", "JobRejected", "AdmissionWithdrawn"}
    aside = {"evicted", "moved", "GpusEarmarked", "EarmarkDropped", "StartPromised", "PromiseMoved", "PromiseDropped"}
    health = {"GpuJudged", "GpuReturned", "NodeDrainBegun", "NodeDrainEnded", "AlarmRaised", "AlarmCleared"}
    assert {kind for kind in rare | ends | aside | health if kinds[kind] < 5} == set()
    assert kinds["ConsolidationProposed"]
