"""The one way to put a thing into the cluster: each change keeps the indexes that deciders look through."""

from collections.abc import Callable, MutableMapping
from datetime import datetime
from typing import Final, TypeVar

from events.base import JobId, NodeId, RunId, TeamId
from events.job import UNPAID, HoldCode
from projections.cluster.fitness import FIT
from projections.cluster.job import WANT_NOTHING, Job, JobState, OrderKey, Run
from projections.cluster.node import NOWHERE, Kind, Node, NodeState, Pool, Spare, Whole
from projections.cluster.state import Cluster, Line, Purse, Tally, Use, Want

K = TypeVar("K")
NOBODY: Final = Tally()


def put_node(cluster: Cluster, node: Node) -> None:
    """`node` is in the cluster, in the buckets and counts where it belongs, and nowhere else."""
    before = cluster.nodes.get(node.node_id)
    if before is not None:
        _count(cluster, before, -1)
        cluster.places.remove(before.place, before.node_id)
        _leave_pool(cluster, before)
    cluster.nodes[node.node_id] = node
    _count(cluster, node, +1)
    cluster.places.add(node.place, node.node_id)
    _enter_pool(cluster, node)
    _keep(cluster.suspects, node.node_id, wanted=node.state is NodeState.SUSPECT)
    _keep(cluster.cases, node.node_id, wanted=node.asks)
    if node.fitness is not FIT or (before is not None and before.fitness is not FIT):
        _keep_times(cluster, before, node)


def _keep_times(cluster: Cluster, before: Node | None, node: Node) -> None:
    """The node stands where time alone makes something of it."""
    for line, moment_of in ((cluster.windows, _window_at), (cluster.deadlines, _deadline)):
        was, now = moment_of(before) if before is not None else None, moment_of(node)
        if before is not None and was is not None:
            line.remove(None, (was.timestamp(), before.epoch))
        if now is not None:
            line.add(None, (now.timestamp(), node.epoch), node.node_id)


def _window_at(node: Node) -> datetime | None:
    return node.fitness.window_at


def _deadline(node: Node) -> datetime | None:
    drain = node.fitness.drain
    return drain.deadline if drain is not None and node.held else None


def put_slots(cluster: Cluster, node: Node) -> None:
    """The same for a node of which only free slots and runs changed: the common case, and a hot one."""
    if node.sick or node.closed:
        put_node(cluster, node)
        return
    before = cluster.nodes[node.node_id]
    cluster.nodes[node.node_id] = node
    if before.spare != node.spare:
        _leave_pool(cluster, before)
        _enter_pool(cluster, node)


def _enter_pool(cluster: Cluster, node: Node) -> None:
    """What it has to spare may be given away; if that is all of it, it is a whole node of its rack."""
    if (pool := _pool(node)) is None:
        return
    cluster.pools.add(pool, node.node_id)
    if pool.free == pool.size:
        cluster.whole.add(Whole(pool.gpu_type, pool.size, pool.traits, node.place), node.node_id)
    if node.labels and (place := node.place) != NOWHERE:
        _add(cluster.spares, Spare(pool.gpu_type, pool.traits, place), pool.free)


def _leave_pool(cluster: Cluster, node: Node) -> None:
    if (pool := _pool(node)) is None:
        return
    cluster.pools.remove(pool, node.node_id)
    if pool.free == pool.size:
        cluster.whole.remove(Whole(pool.gpu_type, pool.size, pool.traits, node.place), node.node_id)
    if node.labels and (place := node.place) != NOWHERE:
        _add(cluster.spares, Spare(pool.gpu_type, pool.traits, place), -pool.free)


def _pool(node: Node) -> Pool | None:
    spare = node.spare
    if not spare or node.state is not NodeState.UP or node.closed:
        return None
    return Pool(node.gpu_type, node.size, spare.bit_count(), node.traits)


def _count(cluster: Cluster, node: Node, by: int) -> None:
    """A node that is retired is nothing that any gang could ever be on."""
    if node.fitness.retired:
        return
    _add(cluster.sizes, kind_of(node), by)
    if cluster.could:
        cluster.could = {}
    _add(cluster.capacity, node.gpu_type, by * _capacity(node))


def kind_of(node: Node) -> Kind:
    """With which others a node is counted."""
    return Kind(node.state, node.gpu_type, node.size, node.closed, node.traits, node.place)


def _capacity(node: Node) -> int:
    """GPUs of a node that its team may count on: all in the pool; of a closed one, and of those that are sick, what is in use."""
    return (node.pool & ~(node.free if node.closed else node.free & node.sick)).bit_count()


def _add(counts: MutableMapping[K, int], key: K, by: int) -> None:
    """The count is changed by so much; one of 0 does not exist."""
    if count := counts.get(key, 0) + by:
        counts[key] = count
    elif key in counts:
        del counts[key]


def put_job(cluster: Cluster, job: Job) -> None:
    """`job` is in the cluster, stands in the line of its state, and is counted there."""
    before = cluster.jobs.get(job.job_id)
    if before is not None and before.state is not JobState.PLACED:
        _leave_lines(cluster, before)
    cluster.jobs[job.job_id] = job
    if job.state is not JobState.PLACED:
        _enter_lines(cluster, job)
    _recount(cluster, job, +1, instead=before)
    _keep(cluster.unwanted, job.job_id, wanted=job.cancel and job.state is not JobState.PLACED)
    if job.avoid or (before is not None and before.avoid):
        _keep_avoiding(cluster, before, job)


def _enter_lines(cluster: Cluster, job: Job) -> None:
    key = cluster.key(job)
    if job.state is JobState.ADMITTED:
        cluster.admitted.add(line_of(job), key, job.job_id)
        if job.spec.max_runtime_s:
            cluster.shortest.add(job.shape, (job.spec.max_runtime_s, job.submitted), job.job_id)
    elif job.hold is HoldCode.FAILED_TOO_OFTEN:
        pass  # it stands in no line until somebody resumes it
    elif job.not_before is None:
        line = line_of(job)
        cluster.queue.add(line, key, job.job_id)
        if job.hold in UNPAID:
            cluster.unpaid.add(_purse(line, job), _cost_key(job), job.job_id)
    else:
        cluster.later.add(None, _later_key(job, key), job.job_id)


def line_of(job: Job) -> Line:
    """The line that a waiting job stands in; `borrowing` is said of admitted ones only."""
    return Line(job.team, job.shape, job.hold, job.borrowing, job.rank, not job.spec.preemptible)


def drop_job(cluster: Cluster, job_id: JobId) -> None:
    """The job has ended and is forgotten."""
    job = cluster.jobs.pop(job_id)
    if job.state is not JobState.PLACED:
        _leave_lines(cluster, job)
    _recount(cluster, job, -1)
    _keep(cluster.unwanted, job_id, wanted=False)
    if job.avoid:
        _keep_avoiding(cluster, job, None)


def _keep_avoiding(cluster: Cluster, before: Job | None, job: Job | None) -> None:
    """The job, if it waits, stands where the first of the nodes that it avoids is forgiven."""
    if before is not None and before.avoid and before.state is not JobState.PLACED:
        cluster.avoiding.remove(None, _forgiven_key(before))
    if job is not None and job.avoid and job.state is not JobState.PLACED:
        cluster.avoiding.add(None, _forgiven_key(job), job.job_id)


def _forgiven_key(job: Job) -> OrderKey:
    return (min(job.avoid.values()).timestamp(), job.submitted)


def _leave_lines(cluster: Cluster, job: Job) -> None:
    key = cluster.key(job)
    if job.state is JobState.ADMITTED:
        cluster.admitted.remove(line_of(job), key)
        if job.spec.max_runtime_s:
            cluster.shortest.remove(job.shape, (job.spec.max_runtime_s, job.submitted))
    elif job.hold is HoldCode.FAILED_TOO_OFTEN:
        pass
    elif job.not_before is None:
        line = line_of(job)
        cluster.queue.remove(line, key)
        if job.hold in UNPAID:
            cluster.unpaid.remove(_purse(line, job), _cost_key(job))
    else:
        cluster.later.remove(None, _later_key(job, key))


def _purse(line: Line, job: Job) -> Purse:
    return Purse(line, job.spec.account, bool(job.spec.max_runtime_s))


def _cost_key(job: Job) -> OrderKey:
    """Of jobs that are alike, the shorter costs less."""
    return (job.spec.max_runtime_s, job.submitted)


def _later_key(job: Job, key: OrderKey) -> OrderKey:
    assert job.not_before is not None
    return (job.not_before.timestamp(), *key)


def _recount(cluster: Cluster, job: Job, by: int, *, instead: Job | None = None) -> None:
    """The job is counted with its team, `instead` of what it was before: most changes of a job leave all counts as they are."""
    waiting = by * (job.state is not JobState.PLACED)
    placed, wants = by - waiting, by * _wants(job)
    if instead is not None:
        waited = instead.state is not JobState.PLACED
        waiting, placed, wants = waiting - waited, placed - (not waited), wants - _wants(instead)
    if waiting or placed:
        before = cluster.tallies.get(job.team, NOBODY)
        tally = Tally(before.waiting + waiting, before.placed + placed)
        if any(tally):
            cluster.tallies[job.team] = tally
        else:
            del cluster.tallies[job.team]
    if wants:
        _add(cluster.wanted, Want(job.team, job.shape.gpu_types), wants)


def _wants(job: Job) -> int:
    """The GPUs that a job waits for: none if it is in its back-off, or could not be placed, or not be paid for."""
    if job.state is JobState.PLACED or job.not_before is not None or job.cancel or job.hold in WANT_NOTHING:
        return 0
    return job.shape.gpus


def set_order(cluster: Cluster, change: Callable[[], None]) -> None:
    """`change`, of the policy, is made, and every waiting job stands where the new order puts it."""
    waiting = [job for job in cluster.jobs.values() if job.state is not JobState.PLACED]
    for job in waiting:
        _leave_lines(cluster, job)
    change()
    for job in waiting:
        _enter_lines(cluster, job)


def put_run(cluster: Cluster, run: Run) -> None:
    """`run` is in the cluster, its GPUs are counted, and it is in `attention` if lifecycle has something to say about it."""
    before = cluster.runs.get(run.run_id)
    if before is None:
        use = use_of(run)
        _add(cluster.usage, use, run.gpus)
        _add(cluster.teams, run.team, run.gpus)
        _add(cluster.staying, use, 1)
    if run.evicted_for and not (before is not None and before.evicted_for):
        _add(cluster.leaving, use_of(run), run.gpus)
        _add(cluster.staying, use_of(run), -1)
    cluster.runs[run.run_id] = run
    if before is None or before.end != run.end:
        if before is not None and before.end is not None:
            cluster.ends.remove(before.gpu_type, _end_key(before, before.end))
        if run.end is not None:
            cluster.ends.add(run.gpu_type, _end_key(run, run.end), run.run_id)
    due_before, due = before.due if before is not None else None, run.due
    if due_before != due:
        if due_before is not None:
            cluster.starting.remove(None, _end_key(run, due_before))
        if due is not None:
            cluster.starting.add(None, _end_key(run, due), run.run_id)
    if run.stopping is not None:
        _keep(cluster.recovering, run.run_id, wanted=run.recovers)
    look_at(cluster, run.run_id)


def _end_key(run: Run, end: datetime) -> OrderKey:
    return (end.timestamp(), run.placed)


def use_of(run: Run) -> Use:
    """Where the GPUs of a run are counted."""
    return Use(run.team, run.gpu_type, run.rank, run.preemptible)


def look_at(cluster: Cluster, run_id: RunId) -> None:
    """`attention` has the run if, and only if, its state asks for a decision."""
    run = cluster.runs[run_id]
    on_hold = cluster.tree.on_hold(run.team)
    _keep(cluster.attention, run_id, wanted=asks_for_decision(run, cluster.jobs[run.job_id], on_hold=on_hold))


def look_at_teams(cluster: Cluster, teams: frozenset[TeamId]) -> None:
    """`attention` is right again for all runs of teams whose queues were put on hold, or are no more."""
    for run in list(cluster.runs.values()):
        if run.team in teams:
            look_at(cluster, run.run_id)


def asks_for_decision(run: Run, job: Job, *, on_hold: bool) -> bool:
    """Whether a run is over, has to be stopped, or is complete and not said to be. `on_hold`: its queue is."""
    if run.over:
        return True
    if run.stopping is not None:
        return False
    unended = run.ended != run.all
    if run.failure is not None or run.broken or (unended and (job.cancel or run.evicted_for or on_hold or run.hurt)):
        return True
    return run.started_at is None and run.started == run.all


def drop_run(cluster: Cluster, run_id: RunId) -> None:
    """The run is over and is forgotten; no slot of a living node is its own any more."""
    run = cluster.runs.pop(run_id)
    if run.end is not None:
        cluster.ends.remove(run.gpu_type, _end_key(run, run.end))
    if (due := run.due) is not None:
        cluster.starting.remove(None, _end_key(run, due))
    use = use_of(run)
    _add(cluster.usage, use, -run.gpus)
    _add(cluster.teams, run.team, -run.gpus)
    if run.evicted_for:
        _add(cluster.leaving, use, -run.gpus)
    else:
        _add(cluster.staying, use, -1)
    _keep(cluster.attention, run_id, wanted=False)
    _keep(cluster.recovering, run_id, wanted=False)


def _keep(members: MutableMapping[K, None], key: K, *, wanted: bool) -> None:
    """The key is a member if, and only if, that is wanted."""
    if wanted:
        members[key] = None
    elif key in members:
        del members[key]


def node_of(cluster: Cluster, node_id: NodeId, epoch: int) -> Node | None:
    """The node, if it is in this life; None for what is said of another one."""
    node = cluster.nodes.get(node_id)
    return node if node is not None and node.epoch == epoch else None
