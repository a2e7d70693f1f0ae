"""What a day of arrivals and departures leaves of whole nodes, by each placement policy. `python -m bench.fragment [--json]`.

A pure loop over a room: jobs arrive at random at a load of 90 %, run for a random time, and wait in order while they do
not fit; a smaller one may go before a larger one. Nothing is preempted, moved or promised.
"""

import argparse
import json
import platform
import sys
from heapq import heappop, heappush
from random import Random
from time import process_time
from typing import NamedTuple

from events.base import GpuUuid, NodeEpoch, NodeId
from events.job import NodeShare
from events.policy import PlacePolicy, PolicySet
from projections.cluster.index import put_node
from projections.cluster.job import Shape
from projections.cluster.node import Node
from projections.cluster.placing.place import Placement, Room, place
from projections.cluster.state import NO_POLICY, Cluster

NODES, GPUS_PER_NODE, RACK, SPINE = 1_250, 8, 8, 128
LOAD = 0.9
SIZES = (1, 2, 4, 8, 16, 64, 256)
WEIGHTS = (400, 400, 400, 400, 240, 150, 10)
RUNTIME_S = 2 * 3_600.0  # on average
WARM_UP_S, DAY_S = 12 * 3_600.0, 24 * 3_600.0
LARGE = 64  # GPUs


class Arrival(NamedTuple):
    """A job: when it comes, how long it runs."""

    at_s: float
    gpus: int
    runtime_s: float


def arrivals(seed: int) -> list[Arrival]:
    """The jobs of warm-up and day, in order."""
    random = Random(seed)
    mean_gpus = sum(size * weight for size, weight in zip(SIZES, WEIGHTS, strict=True)) / sum(WEIGHTS)
    every_s = mean_gpus * RUNTIME_S / (LOAD * NODES * GPUS_PER_NODE)
    found: list[Arrival] = []
    at_s = 0.0
    while (at_s := at_s + random.expovariate(1 / every_s)) < WARM_UP_S + DAY_S:
        (gpus,) = random.choices(SIZES, WEIGHTS)
        found.append(Arrival(at_s, gpus, random.expovariate(1 / RUNTIME_S)))
    return found


def cluster_of(policy: PlacePolicy) -> Cluster:
    """An idle cluster in racks and spines."""
    cluster = Cluster()
    cluster.policy = PolicySet(at=NO_POLICY.at, placement=policy)
    mask = (1 << GPUS_PER_NODE) - 1
    for number in range(NODES):
        name = f"n{number:04d}"
        put_node(
            cluster,
            Node(
                node_id=NodeId(name),
                epoch=NodeEpoch(1),
                gpu_type="h100",
                uuids=tuple(GpuUuid(f"{name}-{slot}") for slot in range(GPUS_PER_NODE)),
                present=mask,
                pool=mask,
                free=mask,
                labels={"rack": f"r{number // RACK:03d}", "spine": f"s{number // SPINE:02d}"},
            ),
        )
    return cluster


class Day:
    """The cluster through warm-up and day, and what is counted of the day."""

    def __init__(self, policy: PlacePolicy) -> None:
        self.room = Room(cluster_of(policy))
        self.now_s = 0.0
        self.ends: list[tuple[float, int, tuple[NodeShare, ...]]] = []
        self.waiting: list[Arrival] = []
        self.counted_s = self.busy = self.whole = 0.0  # times their seconds
        self.started = 0
        self.waits: list[tuple[int, float]] = []  # GPUs and seconds, of each job that started in the day

    def until(self, at_s: float) -> None:
        """Time passes, and runs end."""
        while self.ends and self.ends[0][0] <= at_s:
            end_s, _, shares = heappop(self.ends)
            self._pass(end_s)
            self.room.give(shares)
            self._start_waiting()
        self._pass(at_s)

    def arrive(self, job: Arrival) -> None:
        """A job comes: it starts, or waits behind the others."""
        self.until(job.at_s)
        if not self._start(job):
            self.waiting.append(job)

    def _start_waiting(self) -> None:
        misfits: set[int] = set()
        still: list[Arrival] = []
        for job in self.waiting:
            if job.gpus in misfits or not self._start(job):
                misfits.add(job.gpus)
                still.append(job)
        self.waiting = still

    def _start(self, job: Arrival) -> bool:
        found = place(self.room, Shape(job.gpus))
        if not isinstance(found, Placement):
            return False
        self.room.take(found.shares)
        self.started += 1
        heappush(self.ends, (self.now_s + job.runtime_s, self.started, found.shares))
        if self.now_s >= WARM_UP_S:
            self.waits.append((job.gpus, self.now_s - job.at_s))
        return True

    def _pass(self, at_s: float) -> None:
        seconds, self.now_s = at_s - max(self.now_s, WARM_UP_S), at_s
        if seconds <= 0:
            return
        pools = self.room.pools
        free = {pool: len(pools.names(pool)) for pool in pools.groups()}
        self.counted_s += seconds
        self.busy += seconds * (NODES * GPUS_PER_NODE - sum(pool.free * nodes for pool, nodes in free.items()))
        self.whole += seconds * sum(nodes for pool, nodes in free.items() if pool.free == pool.size)


def day(policy: PlacePolicy, seed: int) -> dict[str, float | str]:
    """What a day comes to."""
    began = process_time()
    cluster_day = Day(policy)
    for job in arrivals(seed):
        cluster_day.arrive(job)
    cluster_day.until(WARM_UP_S + DAY_S)
    large = [wait for gpus, wait in cluster_day.waits if gpus >= LARGE]
    large += [cluster_day.now_s - job.at_s for job in cluster_day.waiting if job.gpus >= LARGE]
    return {
        "policy": policy.value,
        "jobs": len(cluster_day.waits),
        "busy_percent": round(100 * cluster_day.busy / cluster_day.counted_s / (NODES * GPUS_PER_NODE), 1),
        "whole_nodes_free": round(cluster_day.whole / cluster_day.counted_s, 1),
        "large_gangs": len(large),
        "large_that_waited": sum(wait > 0 for wait in large),
        "large_wait_mean_s": round(sum(large) / len(large)),
        "large_still_waiting": sum(job.gpus >= LARGE for job in cluster_day.waiting),
        "seconds": round(process_time() - began, 1),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    result = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "days": [day(policy, options.seed) for policy in PlacePolicy],
    }
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        return
    for row in result["days"]:
        print("  ".join(f"{name} {value}" for name, value in row.items()))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
