"""Ranks that bear witness: each notes its start and its end, and holds its GPU for as long as anything of it lives."""

from collections import defaultdict
from pathlib import Path
from typing import Final

STARTS: Final = "starts"  # files in the folder of a rank: who started,
ENDS: Final = "ends"  # who came to the end of its script,
SHARED: Final = "shared"  # and who found its GPU held by another; not there where none did
RANK: Final = """
gpu=$(echo "$CUDA_VISIBLE_DEVICES" | cut -d, -f$((LOCAL_RANK + 1)))
echo "$MUSTER_JOB_ID $MUSTER_ATTEMPT $RANK" >> {folder}/starts
exec 9>> {folder}/gpu-$gpu
flock -n 9 || echo "$MUSTER_RUN_ID $RANK $gpu" >> {folder}/shared
sleep {sleep_s}
echo "$MUSTER_JOB_ID $MUSTER_ATTEMPT $RANK" >> {folder}/ends
exit {code}
"""


def noted(file: Path) -> dict[str, dict[int, list[int]]]:
    """The ranks that noted themselves in a file, by job and attempt, in the order of their notes."""
    found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in file.read_text().splitlines() if file.exists() else ():
        job_id, attempt, rank = line.split()
        found[job_id][int(attempt)].append(int(rank))
    return found
