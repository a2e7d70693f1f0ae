"""What one scheduling round looks at, and keeps up to date as it decides."""

import msgspec

from events.base import RunId
from projections.cluster.placing.place import Room
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.scheduler.field import Field


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
    fields: dict[str, Field] = msgspec.field(default_factory=dict)  # by GPU type, made when first asked for

    def field(self, gpu_type: str) -> Field:
        """The runs on a GPU type that may be stopped at all, as the round found them."""
        if (field := self.fields.get(gpu_type)) is None:
            field = self.fields[gpu_type] = Field(self.cluster, self.tick.at, gpu_type)
        return field
