"""Decisions and folds a second, from memory: no log, no tables. `python -m bench.decide [--json]`."""

import argparse
import gc
import json
import platform
import sys
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from time import process_time
from typing import Any

from events.base import GpuUuid, JobId, NodeEpoch, NodeId, Recorded, TeamId, position_of
from events.head import LeadershipTaken
from events.job import JobPlaced, JobSpec, JobSubmitted
from events.node import EndReason, GpusFoundClean, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from events.policy import PlacePolicy, PolicySet
from projections.cluster.evolve import evolve
from projections.cluster.explain.why import explain
from projections.cluster.job import Shape
from projections.cluster.placing.place import Placement, Room, place
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.admission.decide import decide as admit
from services.control.round import decide_all
from services.main.serve import COLLECT_EVERY
from services.scheduler.decide import PLACED_MAX
from services.scheduler.decide import decide as schedule

AT = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
GPUS_PER_NODE = 8


class Log:
    """Records in memory, folded as they come."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.records: list[Recorded] = []
        self.add(LeadershipTaken(at=AT, instance="a", version=""))

    def add(self, *events: Any) -> None:
        """Append and fold."""
        for event in events:
            recorded = Recorded(event, position_of(1, len(self.records) + 1), AT)
            self.records.append(recorded)
            self.cluster = evolve(self.cluster, recorded)

    def join(self, nodes: int, *, racks: bool = False) -> None:
        """`nodes` nodes of 8 clean GPUs; `racks`: in racks of 8, of which 16 are a spine."""
        for number in range(nodes):
            node_id = NodeId(f"n{number:05d}")
            uuids = tuple(GpuUuid(f"{node_id}-{slot}") for slot in range(GPUS_PER_NODE))
            self.add(
                NodeJoined(
                    at=AT,
                    node_id=node_id,
                    boot_id="b",
                    instance="i",
                    gpu_type="h100",
                    gpu_uuids=uuids,
                    address="127.0.0.1",
                    port_base=20_000,
                    labels={"rack": f"r{number // 8:04d}", "spine": f"s{number // 128:03d}"} if racks else {},
                )
            )
            epoch = NodeEpoch(self.records[-1].position)
            self.add(GpusFoundClean(at=AT, node_id=node_id, node_epoch=epoch, gpu_uuids=uuids))

    def submit(self, jobs: int, gpus: int) -> None:
        """`jobs` jobs of one shape."""
        first = len(self.cluster.jobs)
        for number in range(first, first + jobs):
            spec = JobSpec(name="burst", command=("true",), gpus=gpus)
            ids = {"at": AT, "team": TeamId("t"), "job_id": JobId(f"j{number:06d}")}
            self.add(JobSubmitted(**ids, spec=spec, key=str(number), request_hash="h"))  # type: ignore[arg-type]

    def rounds(self) -> tuple[int, float, float]:
        """Decide until nothing is left: (events, seconds of deciding, seconds of the longest round)."""
        decided, spent, longest = 0, 0.0, 0.0
        while True:
            began = process_time()
            events = decide_all(self.cluster, Tick(at=AT, position=self.records[-1].position))
            took = process_time() - began
            spent, longest = spent + took, max(longest, took)
            if not events:
                return decided, spent, longest
            decided += len(events)
            self.add(*events)

    def finish(self) -> None:
        """Every run starts, ends well and is released, as its agents would say."""
        for recorded in list(self.records):
            if isinstance(recorded.event, JobPlaced):
                for share in recorded.event.shares:
                    ids: Any = {
                        "at": AT,
                        "node_id": share.node_id,
                        "node_epoch": share.node_epoch,
                        "run_id": recorded.event.run_id,
                    }
                    self.add(ShareStarted(**ids), ShareEnded(**ids, reason=EndReason.EXITED))
                    self.add(GpusReleased(**ids, slots=share.slots))


def burst(nodes: int) -> dict[str, float]:
    """One job a GPU, all placed; then a full cluster with as many waiting."""
    log = Log()
    log.join(nodes)
    jobs = nodes * GPUS_PER_NODE
    log.submit(jobs, 1)
    scheduling = _admitted_only(log)
    events, seconds, longest = log.rounds()
    assert len(log.cluster.runs) == jobs, len(log.cluster.runs)
    log.submit(jobs, 1)
    _, holding, _ = log.rounds()
    full = timed(lambda: decide_all(log.cluster, Tick(at=AT, position=log.records[-1].position)), 20)
    gang = timed(lambda: place(Room(log.cluster), Shape(80, 0, 0, ())), 20)
    log.submit(1, 80)
    why = timed(lambda: explain(log.cluster, JobId(f"j{2 * jobs:06d}"), at=AT), 5)
    return {
        "nodes": nodes,
        "jobs_admitted_and_placed_per_s": round(jobs / seconds),
        "placements_per_s": round(PLACED_MAX / scheduling),
        "round_longest_ms": round(longest * 1e3, 1),
        "events_decided": events,
        "hold_all_waiting_s": round(holding, 3),
        "round_full_cluster_ms": round(full * 1e3, 3),
        "gang_80_misfit_ms": round(gang * 1e3, 3),
        "gang_80_why_ms": round(why * 1e3, 3),
    }


def _admitted_only(log: Log) -> float:
    """Seconds in which the scheduler alone places a full round of admitted jobs; nothing of it stays."""
    tick = Tick(at=AT, position=log.records[-1].position)
    fork = log.cluster.fork()
    for _ in range(3):  # as many as wait after some rounds of admission
        fork = reduce(evolve, map(tick.decided, admit(fork, tick)), fork)
    assert len(schedule(fork, tick)) == PLACED_MAX
    return timed(lambda: schedule(fork, tick), 10)


def placing(nodes: int, policy: PlacePolicy) -> dict[str, float | str]:
    """Placement alone, by one policy, on empty nodes in racks of 8 and spines of 16 racks: what one room can give."""
    log = Log()
    log.join(nodes, racks=True)
    log.add(PolicySet(at=AT, placement=policy))
    full = Room(log.cluster)
    while isinstance(found := place(full, Shape(7)), Placement):
        full.take(found.shares)  # one GPU is left on each node
    least = timed(lambda: place(full, Shape(80, min_gpus=72, within="rack", required=True)), 5)
    return {
        "nodes": nodes,
        "policy": policy.value,
        "one_gpu_per_s": round(_per_s(log.cluster, Shape(1), 2_000)),
        "gangs_of_4_nodes_per_s": round(_per_s(log.cluster, Shape(32), 200)),
        "gangs_of_4_with_rest_per_s": round(_per_s(log.cluster, Shape(36), 200)),
        "gangs_of_8_in_a_rack_per_s": round(_per_s(log.cluster, Shape(64, within="rack", required=True), 100)),
        "gang_of_250_nodes_ms": round(1e3 / _per_s(log.cluster, Shape(2_000), 3), 3),
        "gang_of_250_by_2_ms": round(1e3 / _per_s(log.cluster, Shape(500, 250, 2), 3), 3),
        "elastic_up_to_all_ms": round(1e3 / _per_s(log.cluster, Shape(nodes * 16, min_gpus=8), 1), 3),
        "misfit_in_a_rack_ms": round(least * 1e3, 3),
    }


def _per_s(cluster: Cluster, shape: Shape, times: int) -> float:
    """How many gangs of a shape a new room places in a second, the first of which finds its way about."""

    def place_all() -> None:
        room = Room(cluster)
        for _ in range(times):
            found = place(room, shape)
            assert isinstance(found, Placement), found
            room.take(found.shares)

    return times / timed(place_all, 5)


def folding(nodes: int) -> dict[str, float]:
    """The whole life of one-GPU jobs, folded again from memory."""
    log = Log()
    log.join(nodes)
    log.submit(nodes * GPUS_PER_NODE, 1)
    log.rounds()
    log.finish()
    log.rounds()
    assert not log.cluster.runs
    seconds = timed(lambda: reduce(evolve, log.records, Cluster()), 3)
    return {"nodes": nodes, "events": len(log.records), "fold_events_per_s": round(len(log.records) / seconds)}


def timed(call: Callable[[], object], times: int) -> float:
    """Seconds of one call, the least of several."""
    least = float("inf")
    for _ in range(times):
        began = process_time()
        call()
        least = min(least, process_time() - began)
    return least


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_250, 12_500])
    options = parser.parse_args()
    gc.set_threshold(*COLLECT_EVERY)  # as the processes do
    result = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "decide": [burst(nodes) for nodes in options.nodes],
        "place": [placing(nodes, policy) for nodes in options.nodes for policy in PlacePolicy],
        "fold": [folding(options.nodes[0])],
    }
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        return
    for rows in (result["decide"], result["place"], result["fold"]):
        for row in rows:
            print("  ".join(f"{name} {value}" for name, value in row.items()))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
