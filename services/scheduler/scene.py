"""What one scheduling round looks at, and keeps up to date as it decides."""

import msgspec

from events.base import RunId
from projections.cluster.entitlement import Standing
from projections.cluster.place import Room
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick


class Scene(msgspec.Struct, frozen=True):
    """The cluster as the round found it, and what the round has given away so far.

    `cluster` and `tick` stay as they are. `room` and `standing` follow each decision: what was placed, earmarked or
    promised is gone from the room, and counts in what its team uses. Who tries something forks the room first.
    """

    cluster: Cluster
    tick: Tick
    room: Room
    standing: Standing
    evicted: set[RunId] = msgspec.field(default_factory=set)  # victims that the round has chosen: each ends for one job
