"""How each event changes the cluster: one table, without opinions. What is in the log has happened."""

from collections.abc import Callable
from typing import Any, Final

from events.base import ALARMS, CHAPTER, CREDIT, FLEET, HEAD, JOB, PERIOD, Recorded, Unreadable
from events.chapter import ChapterOpened
from events.codec import family_of
from events.head import LeadershipTaken, LogFounded, RoundDecided
from events.policy import PolicySet
from events.queues import QueuesSet
from projections.cluster.account import settle
from projections.cluster.avoid import forgive
from projections.cluster.evolve_credit import CREDIT_CHANGES
from projections.cluster.evolve_drains import DRAIN_CHANGES
from projections.cluster.evolve_health import HEALTH_CHANGES
from projections.cluster.evolve_jobs import JOB_CHANGES
from projections.cluster.evolve_nodes import NODE_CHANGES
from projections.cluster.index import look_at_teams, set_order
from projections.cluster.quota.tree import Tree
from projections.cluster.state import Cluster


def evolve(cluster: Cluster, recorded: Recorded) -> Cluster:
    """The cluster after `recorded`. Takes its argument over: go on with the result only.

    Nothing is refused here. A report that is late, doubled, or of an older epoch finds nothing to change. A record of
    the control plane that contradicts those before it (nobody but an administrator can write one) is treated as one
    that cannot be read: it changes nothing, from there on nothing is decided, and following goes on. Each change makes
    sure of what it assumes before it begins.
    """
    if (change := CHANGES.get(type(recorded.event))) is not None:
        try:
            change(cluster, recorded.event, recorded)
        except (KeyError, AssertionError):
            cluster.unread = cluster.unread or recorded.position
    cluster.position = recorded.position
    cluster.at = recorded.at
    return cluster


def _founded(cluster: Cluster, e: LogFounded, recorded: Recorded) -> None:
    if cluster.log_id:
        cluster.head = recorded.position  # the fence has moved, whatever it says
        raise AssertionError("a log is founded once")
    cluster.log_id = e.log_id
    cluster.head = recorded.position


def _leadership_taken(cluster: Cluster, e: LeadershipTaken, recorded: Recorded) -> None:
    cluster.head = cluster.epoch = recorded.position
    cluster.leader = e.instance


def _round_decided(cluster: Cluster, e: RoundDecided, recorded: Recorded) -> None:
    cluster.head = recorded.position
    forgive(cluster, recorded.at)


def _chapter_opened(cluster: Cluster, e: ChapterOpened, recorded: Recorded) -> None:
    cluster.head = recorded.position


def _policy_set(cluster: Cluster, e: PolicySet, recorded: Recorded) -> None:
    reordered = e.order is not cluster.policy.order
    settle(cluster, recorded.at, half_life_s=e.half_life_s)

    def set_it() -> None:
        cluster.policy, cluster.policy_position = e, recorded.position

    if reordered:
        set_order(cluster, set_it)
    else:
        set_it()


def _queues_set(cluster: Cluster, e: QueuesSet, recorded: Recorded) -> None:
    before = cluster.tree
    cluster.queues = {queue.name: queue for queue in e.queues}
    cluster.tree = Tree(cluster.queues)
    cluster.queues_position = recorded.position
    if before.holds or cluster.tree.holds:
        changed = (team for team in cluster.teams if cluster.tree.on_hold(team) != before.on_hold(team))
        look_at_teams(cluster, frozenset(changed))


def _unreadable(cluster: Cluster, e: Unreadable, recorded: Recorded) -> None:
    family = family_of(e.subject, (JOB, FLEET, HEAD, CREDIT, PERIOD, ALARMS, CHAPTER))
    if family is not None:
        cluster.unread = cluster.unread or recorded.position
    if family is HEAD:
        cluster.head = recorded.position  # the fence has moved, whatever it says


CHANGES: Final[dict[type, Callable[[Cluster, Any, Recorded], None]]] = {
    LogFounded: _founded,
    LeadershipTaken: _leadership_taken,
    RoundDecided: _round_decided,
    ChapterOpened: _chapter_opened,
    PolicySet: _policy_set,
    QueuesSet: _queues_set,
    Unreadable: _unreadable,
    **JOB_CHANGES,
    **NODE_CHANGES,
    **CREDIT_CHANGES,
    **HEALTH_CHANGES,
    **DRAIN_CHANGES,
}
