"""What each word on drains and maintenance makes of those that a node has: for the fold and for the table alike.

Whoever began it, a node has one drain. Maintenance that has begun is a part of it, and never the whole where anything else
drains the node too: then it ends without ending that.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from events.fleet import DrainCause, NodeDrainBegun, NodeDrained, NodeDrainEnded, NodeRetired
from events.node import NodeJoined
from events.operator import MaintenanceCancelled, MaintenancePlanned, NodeDrainAsked, NodeUndrainAsked
from projections.cluster.fitness import Drain, Window

WINDOWS_MAX: Final = 64  # of one node: of more, those that begin first

DrainWord = (
    NodeDrainAsked
    | NodeDrainBegun
    | NodeDrained
    | NodeDrainEnded
    | NodeUndrainAsked
    | NodeRetired
    | MaintenancePlanned
    | MaintenanceCancelled
    | NodeJoined
)


class Drains(msgspec.Struct, frozen=True, gc=False):
    """What drains a node, and will."""

    drain: Drain | None = None
    windows: tuple[Window, ...] = ()  # by their start
    retired: bool = False


def after(drains: Drains, word: DrainWord, at: datetime) -> Drains:
    """What drains the node once this is said. Of one that is retired nothing is said any more."""
    if drains.retired:
        return drains
    drain, windows = drains.drain, drains.windows
    match word:
        case NodeDrainAsked():
            asked = Drain(word.cause, at, word.reason, word.deadline, by=word.by)
            return replace(drains, drain=_over(drain, asked))
        case NodeDrainBegun():
            return replace(drains, drain=_begun(drain, word, at))
        case NodeDrained() if drain is not None:
            return replace(drains, drain=replace(drain, done_at=at))
        case NodeJoined() if drain is not None:
            return replace(drains, drain=replace(drain, done_at=None))  # what was there may be there still
        case NodeDrainEnded() if not word.window:
            return replace(drains, drain=None) if drain is not None and drain.cause is word.cause else drains
        case NodeDrainEnded() | MaintenanceCancelled():
            return _without(drains, word.window)
        case MaintenancePlanned():
            starts = max(word.starts, at)  # one that should have started before starts now
            return _without(drains, word.window, [Window(word.window, starts, word.ends, word.reason, word.by)])
        case NodeUndrainAsked():
            begun = drain.window if drain is not None else ""
            return replace(drains, drain=None, windows=tuple(window for window in windows if window.name != begun))
        case NodeRetired():
            return replace(drains, retired=True, windows=())
        case _:
            return drains


def _begun(before: Drain | None, word: NodeDrainBegun, at: datetime) -> Drain:
    """The control plane's own drain takes the place of no other but maintenance; maintenance joins what there is."""
    if before is not None and word.cause is DrainCause.MAINTENANCE:
        return replace(before, window=word.window, deadline=_earliest(before.deadline, word.deadline))
    if before is None or before.cause is DrainCause.MAINTENANCE:
        return _over(before, Drain(word.cause, at, word.reason, word.deadline, word.window))
    return before


def _over(before: Drain | None, drain: Drain) -> Drain:
    """The drain in place of the one before: maintenance goes on under it, and the node is as empty as it was."""
    if before is None:
        return drain
    deadline = _earliest(drain.deadline, before.deadline) if before.window else drain.deadline
    now = replace(drain, window=before.window, deadline=deadline, done_at=before.done_at)
    return before if replace(now, since=before.since, by=before.by) == before else now  # said again, it is no younger


def _earliest(*deadlines: datetime | None) -> datetime | None:
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _without(drains: Drains, name: str, planned: Iterable[Window] = ()) -> Drains:
    """The window is no more, or `planned` anew: what it had begun ends with it, and nothing else does."""
    kept = [window for window in drains.windows if window.name != name]
    windows = tuple(sorted([*kept, *planned], key=lambda window: (window.starts, window.name))[:WINDOWS_MAX])
    drain = drains.drain
    if drain is not None and drain.window == name:
        drain = None if drain.cause is DrainCause.MAINTENANCE else replace(drain, window="")
    return replace(drains, drain=drain, windows=windows)
