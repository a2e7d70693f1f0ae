"""Signs of trouble for simulated GPUs of a node on this machine: which node, what it should show, and what follows."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from agent import procfs
from agent.injections import CODES, Injection, driver_of, put
from events.gpu import GpuSignal
from runtime.fault import Fault
from services.main.local import CLOCK, DATA_DIR

NODES: Final = "nodes"  # in the data directory of `muster up`: a folder for each node
XID_MAX: Final = 1_000
CODE_MAX: Final = (1 << 31) - 1

FOLLOWS: Final[Mapping[GpuSignal, str]] = {
    GpuSignal.XID: "an error report of the driver, once",
    GpuSignal.ECC_UNCORRECTABLE: "so many more memory errors, once",
    GpuSignal.REMAP_PENDING: "a row of memory that waits for a reset; a reset mends it",
    GpuSignal.REMAP_FAILED: "a row of memory that cannot be remapped, until it is cleared",
    GpuSignal.RECOVERY_ACTION: "that the driver asks for this; a reset mends 1 and 4",
    GpuSignal.THROTTLED: "that hardware slows it down, after 6 looks; a reset mends it",
    GpuSignal.HOT: "so many degrees, after 3 looks, until it is cleared",
    GpuSignal.NVLINK_DOWN: "that the link is down, after 2 looks; a reset mends it",
    GpuSignal.FOREIGN_PROCESS: "a process that holds it, after 3 looks, until it is cleared",
    GpuSignal.MISSING: "no answer, after 2 looks, until it is cleared; it cannot be reset",
}


class Wish(NamedTuple):
    """What was asked for, as it was typed."""

    xid: int | None = None
    signal: str | None = None
    code: int | None = None
    gpu: int | None = None  # the first, or to clear: all
    clear: bool = False


class Injected(NamedTuple):
    """What the node's agent takes in at its next look."""

    what: str
    gpus: str
    agent_runs: bool


def wished(node: str, wish: Wish, data_dir: Path | None, folder: Path) -> Injected:
    """The node's GPUs will show what is wished.

    `data_dir`: the cluster's, or the node's own; None: that of the cluster in `folder`, or in the nearest one above it.
    Raises `Fault` for what cannot be, and then nothing is changed.
    """
    injection = _injection(wish)
    own = _found(node, data_dir, folder)
    if (driver := driver_of(own)) is None:
        raise Fault(
            "not_simulated",
            f"Node {node} has no simulated GPUs: real ones show what they show.",
            f"Nodes with MUSTER_GPUS=simulated:N have them once their agent has started; looked in {own}.",
        )
    gpu = injection.gpu
    if gpu is not None and not 0 <= gpu < driver.count:
        there = f"It has {driver.count}, from 0 to {driver.count - 1}."
        raise Fault("no_such_gpu", f"Node {node} has no GPU {gpu}.", there)
    put(own, injection, CLOCK.now().timestamp())
    gpus = f"GPU {gpu}" if gpu is not None else f"all {driver.count} GPUs"
    return Injected(_said(injection), gpus, _agent_runs(own))


def _injection(wish: Wish) -> Injection:
    given = {"--xid": wish.xid is not None, "--signal": wish.signal is not None, "--clear": wish.clear}
    asked = [name for name, is_given in given.items() if is_given]
    if len(asked) != 1:
        said = " and ".join(asked) or "nothing"
        raise Fault("wish_unclear", f"Say one of --xid N, --signal KIND and --clear, not {said}.", f"KIND: {_kinds()}.")
    if wish.clear or wish.xid is not None:
        if wish.code is not None:
            raise Fault("wish_unclear", f"--code goes with --signal, not with {asked[0]}.", "")
        if wish.clear:
            return Injection(gpu=wish.gpu, clear=True)
        return Injection(gpu=wish.gpu or 0, signal=GpuSignal.XID, code=_within("--xid", wish.xid or 0, 1, XID_MAX))
    signal = _signal(wish.signal or "")
    if signal is GpuSignal.XID and wish.code is None:
        raise Fault("wish_unclear", "An xid has a number.", "Say --xid 79, or any other one.")
    code = CODES.get(signal, 0) if wish.code is None else _within("--code", wish.code, 0, CODE_MAX)
    return Injection(gpu=wish.gpu or 0, signal=signal, code=code)


def _within(name: str, number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise Fault("wish_unclear", f"{name} is {least} to {most}, not {number}.", "")
    return number


def _signal(name: str) -> GpuSignal:
    word = name.strip().lower().replace("-", "_")
    if word in set(GpuSignal):
        return GpuSignal(word)
    near = difflib.get_close_matches(word, list(GpuSignal), n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise Fault("no_such_signal", f"There is no signal {name!r}.", f"{hint}There are {_kinds()}.")


def _kinds() -> str:
    return ", ".join(GpuSignal)


def _found(node: str, data_dir: Path | None, folder: Path) -> Path:
    """The node's own data directory."""
    if data_dir is not None and driver_of(data_dir) is not None:
        return data_dir
    clusters = [data_dir] if data_dir is not None else [place / DATA_DIR for place in (folder, *folder.parents)]
    nodes = next((cluster / NODES for cluster in clusters if (cluster / NODES).is_dir()), None)
    if nodes is None:
        where = str(data_dir) if data_dir is not None else f"{folder}, or above it"
        hint = "Go to the folder that `muster up` was started in, or name a data directory with --data-dir."
        raise Fault("no_cluster_here", f"There are no nodes of a cluster in {where}.", hint)
    there = sorted(path.name for path in nodes.iterdir() if path.is_dir())
    if node not in there:
        near = difflib.get_close_matches(node, there, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise Fault("no_such_node", f"There is no node {node!r} on this machine.", f"{hint}There are {_listed(there)}.")
    return nodes / node


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "none"


def _agent_runs(data_dir: Path) -> bool:
    """Whether the process that last had the directory lives."""
    try:
        return procfs.is_alive(int((data_dir / "lock").read_text()))
    except (OSError, ValueError):
        return False


def _said(injection: Injection) -> str:
    if injection.signal is None:
        return "nothing any more: as after repair. What health took out of use stays out until it is returned"
    code = f" {injection.code}" if injection.code else ""
    return f"{injection.signal.value}{code}: {FOLLOWS[injection.signal]}"
