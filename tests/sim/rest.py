"""After the faults: the world must come to rest, with every job ended, every GPU back, and the same in every fold."""

from typing import Final

from events.base import START, Position
from events.job import IMPOSSIBLE, UNPAID, HoldCode
from projections.cluster.audit.reserving import before_reading
from projections.cluster.evolve import evolve
from projections.cluster.job import Job
from projections.cluster.node import NodeState
from projections.cluster.snapshot import dump
from projections.cluster.state import Cluster
from tests.sim.users import ACCOUNTS
from tests.sim.world import World

REST_S: Final = 600.0  # within which all must have ended
LOOK_S: Final = 2.0
PATIENCE_S: Final = 40.0  # with jobs that wait for what will not come
TIDY_S: Final = 15.0  # between two times that people look after what waits for them
HOPELESS: Final = IMPOSSIBLE | UNPAID | {HoldCode.QUEUE_PAUSED, HoldCode.OVER_FLOOR, HoldCode.EXCEEDS_FLOOR}


class Reading:
    """A fold of the log that began with its first record."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cluster = Cluster()

    def catch_up(self) -> Cluster:
        """All there is, folded."""
        while stretch := self._world.store.memory.stretch(self.cluster.position):
            for recorded in stretch:
                self.cluster = evolve(self.cluster, recorded)
        return self.cluster


def rest(world: World, until_s: float | None = None) -> None:
    """Raises `Broke` unless everything ends well."""
    reading = Reading(world)
    begun_s = world.loop.time()
    tidied_s = begun_s - TIDY_S
    while True:
        cluster = reading.catch_up()
        now_s = world.loop.time()
        left = unrest(world, cluster)
        if not left or (until_s is not None and now_s >= until_s):
            break
        if now_s - begun_s > REST_S:
            world.trace.broke("everything ends", "; ".join(left[:8]))
        if now_s - tidied_s >= TIDY_S:
            tidied_s = now_s
            tidy(world, cluster, late=now_s - begun_s > PATIENCE_S)
        world.run_until(now_s + LOOK_S)
    if not left:
        world.run_until(world.loop.time() + 2.0)
        compare(world, reading)


def tidy(world: World, cluster: Cluster, *, late: bool) -> None:
    """People do what only people can: return what waits for their word, resume, pay, and give up what never can be."""
    users = world.users
    users.operate("set_policy", document=world.policy() | {"breaker_percent": 100}, replaces=None)
    for account in ACCOUNTS:
        if account in cluster.credits.payers.by_name:
            users.give(account, "1000")
    for node in list(cluster.nodes.values()):
        if node.cordoned:
            users.operate("uncordon", node_ids=[node.node_id])
        if node.fitness.drain is not None and not node.fitness.retired:
            users.operate("undrain", node_ids=[node.node_id])
        for window in node.fitness.windows:
            users.operate("cancel_maintenance", node_ids=[node.node_id], window=window.name)
        if node.fitness.ailments:
            users.operate("return_gpus", node_id=node.node_id, gpu_uuids=sorted(node.fitness.ailments))
    for job in list(cluster.jobs.values()):
        if job.job_id not in users.jobs:
            users.jobs[job.job_id] = job.team  # its submitter was never answered
        if job.hold is HoldCode.FAILED_TOO_OFTEN:
            users.resume(job.job_id)
        if late and _hopeless(job):
            users.cancel(job.job_id)


def unrest(world: World, cluster: Cluster) -> list[str]:
    """What is not at rest yet, in words."""
    left = [f"{job.job_id} is {job.state} ({job.hold})" for job in cluster.jobs.values()]
    left += [f"earmark of {job_id}" for job_id in cluster.earmarks]
    left += [f"promise of {job_id}" for job_id in cluster.promises]
    left += [f"bill {bill}" for bill in cluster.credits.bills]
    for host in world.hosts:
        node = cluster.node(host.node_id)
        if host.machine.living:
            left.append(f"{len(host.machine.living)} ranks live on {host.node_id}")
        if node.fitness.retired:
            continue
        if node.state is not NodeState.UP or node.closed:
            left.append(f"{node.node_id} is {node.state}, closed: {node.closed}")
        if node.free != (1 << len(host.machine.uuids)) - 1 or node.sick:
            left.append(f"{node.node_id} has {node.free:b} free, {node.sick:b} sick")
    return left


def compare(world: World, reading: Reading) -> None:
    """Every fold is the same, wherever it began; and the audit's books close."""
    trace, cluster = world.trace, reading.catch_up()
    if cluster.unread:
        trace.broke("every record is read", f"{cluster.unread}")
    mine = dump(cluster)
    for plane in world.planes:
        other = plane.control.cluster if plane.control is not None else None
        if other is None or other.position != cluster.position:
            trace.broke("everybody reads on", f"{plane.name} is at {other.position if other else START}")
        elif dump(other) != mine:
            trace.broke("one fold", f"{plane.name} has another cluster than a fold from the beginning")
    before_reading(world.checker.books, None)
    for finding in world.checker.books.findings:
        trace.broke(f"audit: {finding.law}", finding.message)
    if world.checker.books.position != Position(cluster.position):
        trace.broke("every record is checked", f"{world.checker.books.position}")
    if trace.broken is not None:
        raise trace.broken


def _hopeless(job: Job) -> bool:
    return job.hold in HOPELESS
