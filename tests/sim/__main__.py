"""`python -m tests.sim --seed 7`: one world; without `--seed`, as many as asked, or as long as asked, on all cores."""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import count, islice

from runtime.clock import SystemClock
from tests.sim.run import Outcome, run


def main() -> int:
    """The exit code: 1 where a world broke a law."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="this world only, with its trace")
    parser.add_argument("--first", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--seeds", type=int, default=40, help="how many")
    parser.add_argument("--for", type=float, dest="for_s", help="go on for so many seconds, whatever `--seeds` says")
    parser.add_argument("--fresh", action="store_true", help="begin at a seed that the time of day gives")
    parser.add_argument("--stop", action="store_true", help="stop at the first world that breaks a law")
    parser.add_argument("--until", type=float, help="stop the world at this virtual time")
    parser.add_argument("--steps", type=int, default=40, help="how many lines of the trace are shown")
    parser.add_argument("--watch", action="store_true", help="show every line as it happens")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None:
        outcome = run(given.seed, until_s=given.until, kept=given.steps, watch=given.watch)
        _say(_told(outcome, lines=not given.watch))
        return int(bool(outcome.law))
    return _many(given)


def _many(given: argparse.Namespace) -> int:
    clock = SystemClock()
    begun_s = clock.monotonic()
    first = int(clock.now().timestamp()) * 1_000 if given.fresh else given.first
    seeds: Iterator[int] = count(first)
    seeds = seeds if given.for_s is not None else islice(seeds, given.seeds)
    worlds = broken = records = 0
    virtual_s = 0.0
    with ProcessPoolExecutor(max_workers=given.workers) as pool:
        flying = {pool.submit(run, seed) for seed in islice(seeds, given.workers * 2)}
        while flying:
            done = next(as_completed(flying))
            flying.discard(done)
            outcome = done.result()
            worlds, records, virtual_s = worlds + 1, records + outcome.records, virtual_s + outcome.virtual_s
            if outcome.law:
                broken += 1
                _say(_told(outcome, lines=not given.stop))
                if given.stop:
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
            if given.for_s is None or clock.monotonic() - begun_s < given.for_s:
                flying |= {pool.submit(run, seed) for seed in islice(seeds, 1)}
    took_s = clock.monotonic() - begun_s
    _say(f"{worlds} worlds, {records} records, {virtual_s / 3600:.1f} virtual hours in {took_s:.0f} s: {broken} broken")
    return int(bool(broken))


def _told(outcome: Outcome, *, lines: bool) -> str:
    end = f"BROKEN {outcome.law}: {outcome.message}" if outcome.law else "all laws hold"
    told = list(outcome.last) if lines and outcome.law else []
    told.append(f"seed {outcome.seed}: {end}")
    told.append(f"  faults {outcome.faults}")
    told.append(f"  {outcome.records} records in {outcome.virtual_s:.1f} virtual s; trace {outcome.digest}")
    if outcome.law:
        told.append(f"  again: make sim SEED={outcome.seed}   (or python -m tests.sim --seed {outcome.seed} --watch)")
    return "\n".join(told)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
