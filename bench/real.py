"""The whole life of short jobs as real processes, on a whole cluster: `python -m bench.real [--jobs 300] [--json]`.

`muster up` with simulated nodes; one-GPU jobs that run `true` are submitted in batches over HTTP. Counted is from the
first submission until the API shows the last as succeeded: gate, log, rounds, dispatch, supervisors, ranks, reports,
releases, tables, all on this machine.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, Final

import httpx

from services.main.background import background_cluster, end_leftovers

BATCH: Final = 500
LOOK_EVERY_S: Final = 0.1
TEAM: Final = "bench"


def measure(jobs: int, nodes: int) -> dict[str, Any]:
    """Jobs a second."""
    with TemporaryDirectory(prefix="muster-bench-") as name:
        folder = Path(name)
        options = ("--port", "0", "--nodes", str(nodes), "--gpus-per-node", "8")
        try:
            with background_cluster(folder, *options) as url, httpx.Client(base_url=url, timeout=60.0) as api:
                began = perf_counter()
                for first in range(0, jobs, BATCH):
                    _submit(api, range(first, min(first + BATCH, jobs)))
                while _ended(api) < jobs:
                    sleep(LOOK_EVERY_S)
                seconds = perf_counter() - began
        finally:
            end_leftovers(folder)
    return {
        "machine": f"{os.cpu_count()} cores",
        "jobs": jobs,
        "nodes": nodes,
        "seconds": round(seconds, 2),
        "jobs_per_s": round(jobs / seconds, 1),
    }


def _submit(api: httpx.Client, numbers: range) -> None:
    specs = [{"key": f"k{n}", "spec": {"name": "short", "gpus": 1, "command": ["true"]}} for n in numbers]
    answer = api.post("/v1/jobs:batch", json={"team": TEAM, "jobs": specs}).raise_for_status().json()
    assert answer["refused"] == 0, answer


def _ended(api: httpx.Client) -> int:
    queues = api.get("/v1/queues").raise_for_status().json()["queues"]
    return next((int(queue["by_state"].get("succeeded", 0)) for queue in queues if queue["team"] == TEAM), 0)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=4)
    options = parser.parse_args()
    figures = measure(options.jobs, options.nodes)
    sys.stdout.write(json.dumps(figures) if options.json else "\n".join(f"{k:12} {v}" for k, v in figures.items()))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
