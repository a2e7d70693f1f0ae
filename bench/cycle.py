"""How long a round takes with many waiting jobs on a full cluster, and what it costs in memory. `python -m bench.cycle [--json]`."""

import argparse
import gc
import json
import resource
import sys
from time import process_time
from typing import Any

from bench.decide import AT, GPUS_PER_NODE, Log
from events.base import JobId, TeamId
from events.job import JobSpec, JobSubmitted
from events.policy import PolicySet
from projections.cluster.explain.why import explain
from projections.cluster.job import JobState
from projections.cluster.tick import Tick
from services.control.round import decide_all
from services.main.serve import COLLECT_EVERY

SIZES = (1, 1, 1, 2, 4, 8, 8, 16, 64, 256)  # GPUs of the jobs that wait, in turn
TEAMS = 10


def waiting(log: Log, jobs: int, *, teams: int) -> None:
    """So many jobs are asked for: several sizes and teams, every other one declares a runtime."""
    first = len(log.cluster.jobs)
    for number in range(first, first + jobs):
        spec = JobSpec(
            name="waits",
            command=("true",),
            gpus=SIZES[number % len(SIZES)],
            max_runtime_s=3_600 * (number % 2) * (1 + number % 7),
        )
        ids: dict[str, Any] = {"at": AT, "team": TeamId(f"t{number % teams}"), "job_id": JobId(f"w{number:06d}")}
        log.add(JobSubmitted(**ids, spec=spec, key=str(number), request_hash="h"))


def cycle(nodes: int, jobs: int, *, teams: int, promises: int) -> dict[str, float]:
    """Longest and mean round until nothing is left to say, a round that finds nothing new, and one after a GPU came free."""
    log = Log()
    log.add(PolicySet(at=AT, promises=promises, preemption=teams > 1, admitted_ahead=jobs))
    log.join(nodes)
    for gpus in (GPUS_PER_NODE // 2,) * 2:
        log.submit(nodes, gpus)
    log.rounds()
    waiting(log, jobs, teams=teams)
    events, spent, longest, rounds = 0, 0.0, 0.0, 0
    while True:
        began = process_time()
        decided = decide_all(log.cluster, Tick(at=AT, position=log.records[-1].position))
        took = process_time() - began
        if not decided:
            break
        rounds, events, spent, longest = rounds + 1, events + len(decided), spent + took, max(longest, took)
        log.add(*decided)
    admitted = sum(job.state is JobState.ADMITTED for job in log.cluster.jobs.values())
    return {
        "nodes": nodes,
        "pending": jobs,
        "teams": teams,
        "promises": promises,
        "admitted": admitted,
        "rounds": rounds,
        "events": events,
        "round_mean_ms": round(1_000 * spent / max(rounds, 1), 1),
        "round_longest_ms": round(1_000 * longest, 1),
        "round_idle_ms": round(1_000 * took, 1),
        "why_ms": round(_why_ms(log), 1),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024,
    }


def _why_ms(log: Log) -> float:
    """How long it takes to say why an 80-GPU gang behind all these cannot fit."""
    ids: dict[str, Any] = {"at": AT, "team": TeamId("t0"), "job_id": JobId("gang")}
    spec = JobSpec(name="gang", command=("true",), gpus=80)
    log.add(JobSubmitted(**ids, spec=spec, key="gang", request_hash="h"))
    log.rounds()
    began = process_time()
    explain(log.cluster, JobId("gang"), at=AT)
    return 1_000 * (process_time() - began)


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.cycle", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, nargs="*", default=[1_250, 12_500])
    parser.add_argument("--pending", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--teams", type=int, nargs="*", default=[1, TEAMS])
    parser.add_argument("--promises", type=int, default=1)
    asked = parser.parse_args()
    gc.set_threshold(*COLLECT_EVERY)  # as the processes do
    rows = [
        cycle(nodes, jobs, teams=teams, promises=asked.promises)
        for nodes in asked.nodes
        for jobs in asked.pending
        for teams in asked.teams
    ]
    if asked.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    sys.stdout.write("  ".join(f"{name:>16}" for name in rows[0]) + "\n")
    for row in rows:
        sys.stdout.write("  ".join(f"{value:>16}" for value in row.values()) + "\n")


if __name__ == "__main__":
    main()
