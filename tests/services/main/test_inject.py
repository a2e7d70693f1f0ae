"""What can be injected, and into which nodes; what cannot be is said with what would do, and changes nothing."""

from pathlib import Path

import pytest

from agent.injections import FOLDER
from agent.simulated import SimulatedGpus
from events.base import NodeId
from events.gpu import GpuSignal
from runtime.fault import Fault
from services.main.inject import FOLLOWS, Wish, wished


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a cluster was started whose first node has simulated GPUs, its second real ones; a folder below it."""
    nodes = tmp_path / ".muster" / "nodes"
    SimulatedGpus(NodeId("node-1"), 4, "h100", nodes / "node-1")
    (nodes / "node-2").mkdir()
    (tmp_path / "below").mkdir()
    return tmp_path


def gpus_of(folder: Path) -> SimulatedGpus:
    """The GPUs of the first node."""
    return SimulatedGpus(NodeId("node-1"), 4, "h100", folder / ".muster" / "nodes" / "node-1")


@pytest.mark.parametrize(
    ("wish", "signal", "code"),
    [
        (Wish(xid=79, gpu=1), GpuSignal.XID, 79),
        (Wish(signal="xid", code=13, gpu=1), GpuSignal.XID, 13),
        (Wish(signal="Remap-Failed", gpu=1), GpuSignal.REMAP_FAILED, 0),
        (Wish(signal="hot", code=99, gpu=1), GpuSignal.HOT, 99),
        (Wish(signal="hot", gpu=1), GpuSignal.HOT, 95),
    ],
)
def test_a_sign_is_put_where_the_driver_of_the_node_takes_it_in(
    folder: Path, wish: Wish, signal: GpuSignal, code: int
) -> None:
    """From the folder of the cluster and from below it, or by the cluster's or the node's own data directory."""
    data_dir = folder / ".muster"
    for given, start in (
        (None, folder),
        (None, folder / "below"),
        (data_dir, Path("/")),
        (data_dir / "nodes" / "node-1", Path("/")),
    ):
        injected = wished("node-1", wish, given, start)
        assert (injected.gpus, injected.agent_runs) == ("GPU 1", False)
        assert injected.what.startswith(f"{signal.value} {code}:" if code else f"{signal.value}:")
    assert len(list((data_dir / "nodes" / "node-1" / FOLDER / "inject").iterdir())) == 4


async def test_what_was_wished_is_shown_and_cleared(folder: Path) -> None:
    """By the first GPU where none is named, as in life one has trouble; all are mended."""
    assert wished("node-1", Wish(signal="missing"), None, folder).gpus == "GPU 0"
    answers = [reading.answers for reading in (await gpus_of(folder).look(0)).readings.values()]
    assert answers == [False, True, True, True]
    assert wished("node-1", Wish(clear=True), None, folder).gpus == "all 4 GPUs"
    assert all(reading.answers for reading in (await gpus_of(folder).look(0)).readings.values())


@pytest.mark.parametrize(
    ("node", "wish", "code", "hint"),
    [
        ("node-1", Wish(), "wish_unclear", "hot"),
        ("node-1", Wish(xid=79, clear=True), "wish_unclear", ""),
        ("node-1", Wish(xid=79, code=3), "wish_unclear", ""),
        ("node-1", Wish(xid=0), "wish_unclear", ""),
        ("node-1", Wish(signal="xid"), "wish_unclear", "--xid 79"),
        ("node-1", Wish(signal="hot", code=-1), "wish_unclear", ""),
        ("node-1", Wish(signal="throtled"), "no_such_signal", "Did you mean throttled?"),
        ("node-1", Wish(signal="?"), "no_such_signal", "There are xid, ecc_uncorrectable"),
        ("node-1", Wish(xid=79, gpu=4), "no_such_gpu", "It has 4, from 0 to 3."),
        ("node-1", Wish(xid=79, gpu=-1), "no_such_gpu", ""),
        ("nod-1", Wish(xid=79), "no_such_node", "Did you mean node-1? There are node-1, node-2."),
        ("node-2", Wish(xid=79), "not_simulated", "MUSTER_GPUS=simulated:N"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_put(
    folder: Path, node: str, wish: Wish, code: str, hint: str
) -> None:
    """With what there is."""
    with pytest.raises(Fault) as raised:
        wished(node, wish, None, folder)

    assert raised.value.code == code
    assert hint in raised.value.hint
    assert list((folder / ".muster" / "nodes" / "node-1" / FOLDER / "inject").iterdir()) == []


@pytest.mark.parametrize("given", [True, False])
def test_where_no_cluster_is_it_is_said_where_one_was_looked_for(tmp_path: Path, *, given: bool) -> None:
    """And how to name one."""
    with pytest.raises(Fault, match=str(tmp_path)) as raised:
        wished("node-1", Wish(xid=79), tmp_path if given else None, tmp_path)
    assert "--data-dir" in raised.value.hint


def test_of_every_signal_it_is_said_what_follows() -> None:
    """In a few words."""
    assert set(FOLLOWS) == set(GpuSignal)
