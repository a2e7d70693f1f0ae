"""The environment and the plan of a rank: what it inherits, what its job asked for, and what it is told of its gang."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from events.base import NodeId
from events.desired import DesiredShare

INHERITED: Final = frozenset(
    {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME"}
)
DATA_MARK: Final = "MUSTER_AGENT_DATA"  # on every process of an agent's: whose it is
RUN_MARK: Final = "MUSTER_RUN_ID"
NODE: Final = "MUSTER_NODE_ID"
SUPERVISOR_MARK: Final = "MUSTER_SUPERVISES"  # on supervisors only


class Places:
    """Where a run finds its things."""

    def __init__(
        self, *, data_dir: Path, checkpoint_dir: Path, checkpoint_file: Path, stop_file: Path, workdir: Path
    ) -> None:
        self.data_dir = data_dir
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_file = checkpoint_file
        self.stop_file = stop_file
        self.workdir = workdir


def inherited(environ: Mapping[str, str], node_id: NodeId) -> dict[str, str]:
    """What every rank of a node gets: its name, and of the agent's own environment no settings, secrets or Python."""
    kept = {name: value for name, value in environ.items() if name in INHERITED or name.startswith("LC_")}
    if own := environ.get("VIRTUAL_ENV"):
        path = [entry for entry in kept.get("PATH", "").split(":") if entry != f"{own}/bin"]
        kept["PATH"] = ":".join(path)
    return kept | {NODE: node_id}


def of_rank(share: DesiredShare, local_rank: int, base: Mapping[str, str], places: Places) -> dict[str, str]:
    """The whole environment of one rank. What the job asked for goes before what it inherits; our own words last."""
    return {
        **base,
        **share.spec.env,
        "RANK": str(share.first_rank + local_rank),
        "WORLD_SIZE": str(share.world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(share.local_size),
        "NODE_RANK": str(share.node_rank),
        "GROUP_RANK": str(share.node_rank),
        "MASTER_ADDR": share.master_addr,
        "MASTER_PORT": str(share.master_port),
        "CUDA_VISIBLE_DEVICES": ",".join(share.gpu_uuids),
        "MUSTER_JOB_ID": share.job_id,
        RUN_MARK: share.run_id,
        NODE: base[NODE],
        "MUSTER_ATTEMPT": str(share.attempt),
        "MUSTER_TEAM": share.team,
        "MUSTER_CHECKPOINT_DIR": str(places.checkpoint_dir),
        "MUSTER_CHECKPOINT_FILE": str(places.checkpoint_file),
        "MUSTER_STOP_FILE": str(places.stop_file),
        DATA_MARK: str(places.data_dir),
    }


def of_supervisor(share: DesiredShare, rank: int, data_dir: Path) -> dict[str, str]:
    """The environment of a rank's supervisor: marks only, since the job's could hurt it."""
    return {DATA_MARK: str(data_dir), RUN_MARK: share.run_id, SUPERVISOR_MARK: str(rank)}
