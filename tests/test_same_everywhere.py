"""The same input gives the same decisions, byte for byte: also in another process, whose sets iterate in another order."""

import os
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

from events.codec import Codec, Stamp
from projections.cluster.snapshot import dump
from tests.histories import history

ROOT = Path(__file__).resolve().parent.parent
SEEDS = range(12)
STEPS = 250


def digest() -> str:
    """Of every record and of the fold of some histories, as bytes."""
    codec, hashed = Codec(), blake2b()
    for seed in SEEDS:
        grown = history(seed, STEPS)
        for recorded in grown.records:
            hashed.update(codec.encode(recorded.event, Stamp(id=str(recorded.position))))
        hashed.update(dump(grown.cluster))
    return hashed.hexdigest()


def elsewhere(hash_seed: str) -> str:
    """The digest as a process with this hash seed has it."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "from tests.test_same_everywhere import digest; print(digest())"]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def test_decisions_are_the_same_in_every_process() -> None:
    """Two hash seeds, and the one of this process."""
    assert elsewhere("1") == elsewhere("4242") == digest()
