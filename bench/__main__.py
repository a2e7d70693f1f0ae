"""`python -m bench [NAME…]`: the measurements, each in a process of its own; all of them when none is named."""

import subprocess
import sys
from typing import Final

BENCHES: Final = {
    "log": "append and follow, one server, fsync on every append",
    "decide": "rounds, placement, why and the fold, from memory",
    "cycle": "rounds with many waiting jobs on a full cluster, and memory",
    "preempt": "victims for a large gang among one-GPU jobs, and the append of that decision",
    "fragment": "whole nodes that a day of arrivals and departures leaves, by placement policy",
    "waits": "waits of large gangs with and without promises, in virtual time",
    "project": "the log into the tables: live, rebuild, verify",
    "credits": "reservations and settlements through the log, a long statement, reconciling",
    "burst": "end to end as events: a burst, the whole life of short jobs, the idle latency",
    "agent": "short jobs as real processes through one agent",
    "real": "short jobs as real processes through a whole cluster",
    "heartbeats": "heartbeats of 12,500 nodes beside a steady stream of jobs, for a minute",
    "faults": "parts of a production-like cell killed and frozen under load, for a minute",
}


def main(names: list[str]) -> int:
    """The exit code: 0 when every measurement ran; 2 for a name that is none."""
    if unknown := [name for name in names if name not in BENCHES]:
        sys.stderr.write(f"bench: no such measurement: {', '.join(unknown)}; there are {', '.join(BENCHES)}\n")
        return 2
    failed = 0
    for name in names or BENCHES:
        sys.stdout.write(f"\n== {name}: {BENCHES[name]}\n")
        sys.stdout.flush()
        failed |= subprocess.run([sys.executable, "-I", "-m", f"bench.{name}"], check=False).returncode
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
