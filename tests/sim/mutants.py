"""Does the simulator find bugs? `python -m tests.sim.mutants [NAME…]` breaks the code in known ways, one at a time, and looks.

Each mutation is made in a copy of the project. Printed is, for each, the seed that caught it, the law that it broke, and
how many records were in the log by then. One that nothing catches has survived.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent.parent
COPIED: Final = ("agent", "events", "projections", "runtime", "services", "tests")


class Mutation(NamedTuple):
    """One way to break the code."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS: Final = (
    Mutation(
        "the append is not fenced",
        "events/log/writing.py",
        "return [first._replace(expected=after), *others]",
        "return [first, *others]",
    ),
    Mutation(
        "a round begins on half of a decision",
        "services/control/leader.py",
        "self._read_first = max(self._read_first, Position(recorded.position + events))",
        "pass",
    ),
    Mutation(
        "a standby decides, unfenced and without the lease",
        "services/control/leader.py",
        "if self.cluster.leader != self._instance:  # shuts",
        "if not self.cluster.leader:  # shuts",
    ),
    Mutation(
        "who was shut out of the lead takes it back at once",
        "services/control/retreat.py",
        "return now >= self._until_s",
        "return True",
    ),
    Mutation(
        "a key is not taken for ever",
        "events/log/writing.py",
        "writings[n] = writings[n]._replace(expected=START)",
        "pass",
    ),
    Mutation(
        "an unknown outcome is answered as accepted",
        "services/gate/lane.py",
        "_answer_all(entries, NO_ANSWER)",
        "self._accept(entries, Position(self._reached + 1))",
    ),
    Mutation(
        "a report counts as told without an answer",
        "agent/service.py",
        'logger.warning("report_unanswered", reports=len(batch))',
        "[note(action, self._node, self._node.records.as_of, self._clock) for action in batch]",
    ),
    Mutation(
        "a stale desired state is obeyed, and noted",
        "agent/service.py",
        "desired.as_of < self._node.records.as_of or desired == self._desired",
        "desired == self._desired",
    ),
    Mutation(
        "a share is started without a record on the disk",
        "agent/records.py",
        'write(folder / "start.json", msgspec.json.encode(start), durable=True)',
        "pass",
    ),
    Mutation(
        "a share is started on GPUs that are held",
        "agent/core/reconcile.py",
        "if clean and not found.leftovers",
        "if not found.leftovers",
    ),
    Mutation(
        "GPUs are released while they are held",
        "agent/core/reconcile.py",
        "Told.RELEASED not in trace.told and found.busy.isdisjoint(share.gpu_uuids)",
        "Told.RELEASED not in trace.told",
    ),
    Mutation(
        "the release of a share that never ran is skipped",
        "agent/core/reconcile.py",
        "if Told.RELEASED not in trace.told and",
        "if trace.ranks and Told.RELEASED not in trace.told and",
    ),
    Mutation(
        "the epoch of a node is ignored",
        "projections/cluster/index.py",
        "return node if node is not None and node.epoch == epoch else None",
        "return node",
    ),
    Mutation(
        "the attempt is ignored",
        "projections/cluster/evolve_nodes.py",
        "if node is None or e.run_id not in node.held:\n        return  # late",
        "old = e.run_id\n    if node is not None:\n        same = [r for r in node.held if r.rpartition('-')[0] == old.rpartition('-')[0]]\n"
        "        e = replace(e, run_id=same[0]) if same else e\n"
        "    if node is None or e.run_id not in node.held:\n        return  # late",
    ),
    Mutation(
        "a gang is over when one of its shares is released",
        "projections/cluster/job.py",
        "return self.released | (self.clean if self.on_lost is OnLost.WAIT else self.dead) == self.all",
        "return bool(self.released | (self.clean if self.on_lost is OnLost.WAIT else self.dead))",
    ),
    Mutation(
        "a job that waits for a lost node does not wait",
        "projections/cluster/job.py",
        "(self.clean if self.on_lost is OnLost.WAIT else self.dead)",
        "self.dead",
    ),
    Mutation(
        "jobs are placed on suspect nodes",
        "projections/cluster/evolve_nodes.py",
        "replace(node, state=NodeState.SUSPECT, silent_since=",
        "replace(node, silent_since=",
    ),
    Mutation(
        "jobs are placed on sick GPUs",
        "projections/cluster/node.py",
        "return self.free & ~self.marked & ~self.sick",
        "return self.free & ~self.marked",
    ),
    Mutation(
        "what is set aside is given away",
        "projections/cluster/node.py",
        "return self.free & ~self.marked & ~self.sick",
        "return self.free & ~self.sick",
    ),
    Mutation(
        "desired is written over whatever is there",
        "services/dispatcher/service.py",
        "self._values.put(subject, _encoder.encode(wanted), after=known.sequence)",
        "self._values.put(subject, _encoder.encode(wanted), after=(await self._values.get(subject)).sequence)",
    ),
    Mutation(
        "unused credits are refunded twice",
        "services/ledger/settle.py",
        "_refund(entries, bill, unused, RefundCause.UNUSED)",
        "[_refund(entries, bill, unused, RefundCause.UNUSED) for _ in range(2)]",
    ),
    Mutation(
        "an isolated node lets its ranks live",
        "agent/core/ladder.py",
        "return spec.on_lost is OnLost.RESTART and",
        "return False and",
    ),
    Mutation(
        "a leader that slept judges silence at once",
        "services/control/silence.py",
        "if now - self._turned > GAP_MAX_S or now - self._beat > GAP_MAX_S:",
        "if False:",
    ),
    Mutation(
        "a share that is to stop is started",
        "agent/core/reconcile.py",
        "if share.order is Order.STOP:\n        return [Decline(share)]",
        "if share.order is Order.STOP and not share.gpu_uuids:\n        return [Decline(share)]",
    ),
    Mutation(
        "nothing is kept of what an agent obeyed",
        "agent/records.py",
        'self.as_of = Position(int(read(self.data_dir / "as_of") or b"0"))',
        "self.as_of = Position(0)",
    ),
)


def main() -> int:
    """The exit code: 1 where a mutation survived, or no longer applies."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of mutations; all, if none is given")
    parser.add_argument("--seeds", type=int, default=60, help="worlds that are tried")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    wanted = [one for one in MUTATIONS if not given.names or any(name in one.name for name in given.names)]
    caught = [_try(one, given.seeds, given.workers) for one in wanted]
    _say(f"{sum(caught)} of {len(wanted)} mutations were caught")
    return int(not all(caught))


def _try(mutation: Mutation, seeds: int, workers: int) -> bool:
    """Whether a world broke a law because of it; a line says which."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        file = tree / mutation.file
        text = file.read_text()
        if text.count(mutation.old) != 1:
            _say(f"{mutation.name} | - | does not apply: {text.count(mutation.old)} places in {mutation.file} | -")
            return False
        file.write_text(text.replace(mutation.old, mutation.new))
        command = [sys.executable, "-m", "tests.sim", "--stop", "--seeds", str(seeds), "--workers", str(workers)]
        ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    found = re.search(r"^seed (\d+): BROKEN (.*?): .*$", ended.stdout, re.MULTILINE)
    if found is None:
        last = (ended.stdout + ended.stderr).strip().splitlines()[-1:]
        _say(f"{mutation.name} | - | survived {seeds} worlds ({' '.join(last)}) | -")
        return False
    records = re.search(r"^  (\d+) records", ended.stdout, re.MULTILINE)
    law = re.sub(r"^(audit: [^:]*|[^:]*).*", r"\1", found[0].partition("BROKEN ")[2])
    _say(f"{mutation.name} | {found[1]} | {law} | {records[1] if records else '?'}")
    return True


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
