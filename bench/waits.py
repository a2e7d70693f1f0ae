"""Waits of large gangs with and without promises, in virtual time: `python -m bench.waits [--json] [TRACE.csv[.gz] NODES]…`.

Two days of arrivals at 90 % load on 64 nodes, from a seed: small jobs, whole nodes, gangs of 8 and of 32 nodes. Nobody is
preempted; only how many gangs hold a promise differs, and whether what is declared is the truth or twice as much. A
trace is replayed with no backfill, EASY and conservative.
"""

import argparse
import json
import sys
from pathlib import Path
from time import process_time
from typing import Any, Final

from services.main.simulate import trace
from services.simulate.plan import run_plan

SEED: Final = 1
DAY_S: Final = 86_400
STREAMS: Final = (  # name, GPUs, seconds of a run, seconds between two
    ("small", 2, 3_600, 48),
    ("node", 8, 7_200, 360),
    ("gang", 64, 7_200, 4_600),
    ("large", 256, 3_600, 18_432),
)
PROMISES: Final = {"none": 0, "one": 1, "ten": 10, "all": 1_000_000}
SHOWN: Final = ("1", "2", "5-8", "33-64", "129-256")
TRACE_SHOWN: Final = ("wait_mean_s", "wait_p50_s", "wait_p99_s", "utilisation", "promises_made", "promises_kept")


def synthetic(promises: int, declared: float, days: float) -> dict[str, Any]:
    """The figures of the drawn workload, with the seconds of processor time that it took."""
    jobs = [
        {"name": n, "gpus": g, "runtime": r, "every": e, "count": round(days * DAY_S / e), "random": True, "declared": declared}
        for n, g, r, e in STREAMS
    ]  # fmt: skip
    policy = {"order": "fifo", "promises": promises, "preemption": False, "consolidation": "off"}
    began = process_time()
    _, document = run_plan({"nodes": [{"count": 64}], "policy": policy, "jobs": jobs}, seed=SEED)
    return document | {"took_s": round(process_time() - began, 1)}


def row(name: str, document: dict[str, Any]) -> list[str]:
    """A line of the table: mean and 99 % of the waits of each size, in minutes."""
    waits = [document["sizes"].get(size) for size in SHOWN if size in document["sizes"]]
    cells = [f"{one['wait_mean_s'] / 60:,.0f} / {one['wait_p99_s'] / 60:,.0f}" for one in waits if one]
    kept = f"{document['promises_kept']} of {document['promises_made']}"
    return [name, *cells, f"{document['utilisation']:.1%}", kept, str(document["took_s"])]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--days", type=float, default=2)
    parser.add_argument("traces", nargs="*", metavar="TRACE NODES")
    options = parser.parse_args()
    drawn = {
        f"promises {name}, declared x{declared:g}": synthetic(promises, declared, options.days)
        for declared in (1, 2)
        for name, promises in PROMISES.items()
    }
    replayed = {
        f"{Path(file).name} on {nodes}, {backfill}": trace(
            Path(file), (int(nodes), 8), ("fifo", backfill), lambda _done, _total: None
        ).document
        for file, nodes in zip(options.traces[::2], options.traces[1::2], strict=True)
        for backfill in ("none", "easy", "conservative")
    }
    if options.json:
        json.dump({"synthetic": drawn, "traces": replayed}, sys.stdout, indent=2)
        return
    print("waits in minutes, mean / 99 %, by GPUs of the job")
    present = [size for size in SHOWN if size in next(iter(drawn.values()))["sizes"]]
    lines = [["", *present, "utilisation", "promises kept", "took s"], *(row(*item) for item in drawn.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    for name, document in replayed.items():
        print(f"{name}: " + "  ".join(f"{figure} {document[figure]}" for figure in TRACE_SHOWN))


if __name__ == "__main__":
    main()
