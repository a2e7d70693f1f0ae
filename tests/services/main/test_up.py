"""Starting a whole cluster: ports, folders, and parts that do not start. That it works is tried in tests/e2e."""

import json
import socket
from pathlib import Path

import pytest

from events.log.append import JetStreamLog
from events.policy import PolicySet
from runtime.children import FolderLock
from runtime.fault import Fault
from runtime.nats import connect
from runtime.stopping import Stop
from services.main.local import CLOCK
from services.main.up import Plan, Up, is_there


async def test_a_port_that_was_asked_for_and_is_taken_is_refused(tmp_path: Path) -> None:
    """Before anything starts, and the folder is free again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan = Plan(data_dir=tmp_path, port=taken.getsockname()[1])
        with pytest.raises(Fault, match="is taken") as failed:
            await Up(plan, print, Stop()).run()
    assert failed.value.code == "port_taken"
    lock = FolderLock(tmp_path)
    lock.take()
    lock.give_back()


@pytest.mark.parametrize(
    ("racks", "spines", "places"),
    [
        (0, 0, ["", "", "", "", ""]),
        (0, 1, ["", "", "", "", ""]),  # a spine is of racks
        (2, 0, ["rack-1", "rack-1", "rack-1", "rack-2", "rack-2"]),
        (2, 1, ["rack-1 spine-1"] * 3 + ["rack-2 spine-1"] * 2),
        (4, 2, ["rack-1 spine-1", "rack-1 spine-1", "rack-2 spine-1", "rack-3 spine-2", "rack-4 spine-2"]),
        (9, 9, [f"rack-{n} spine-{n}" for n in range(1, 6)]),
    ],
)
def test_simulated_nodes_stand_in_racks_block_by_block(racks: int, spines: int, places: list[str]) -> None:
    """Neighbours together, the racks as even as they can be, and the spines of racks likewise."""
    plan = Plan(data_dir=Path(), nodes=5, racks=racks, spines=spines)
    said = [plan.place(node_id) for node_id in plan.node_ids]
    assert [" ".join(one.values()) for one in said] == places


async def test_a_server_that_is_brought_back_leaves_the_policy_alone(tmp_path: Path) -> None:
    """What the start said of it was said once: by now an operator may have said otherwise."""
    up = Up(Plan(data_dir=tmp_path, nodes=0, lost_after_s=30.0), print, Stop())
    nats = up._nats
    await up._start_nats()
    try:
        connection = await connect(nats.login("gate"), name="operator")
        log = JetStreamLog(connection)
        position = await log.record([PolicySet(at=CLOCK.now(), lost_after_s=300.0)])
        await nats.stop()
        await up._start_nats()
        last = await log.last("policy")
        assert last is not None
        assert last.position == position
        await connection.close()
    finally:
        await nats.stop()


async def test_a_folder_has_one_cluster(tmp_path: Path) -> None:
    """The second one says whose it is."""
    lock = FolderLock(tmp_path)
    lock.take()
    with pytest.raises(Fault, match="is in use by process"):
        await Up(Plan(data_dir=tmp_path), print, Stop()).run()
    lock.give_back()


@pytest.mark.parametrize("below", ["cluster", "deep/cluster"])
async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, below: str) -> None:
    """With what the system says, before anything starts."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Fault, match=r"file/.* cannot be used: Not a directory") as failed:
        await Up(Plan(data_dir=tmp_path / "file" / below), print, Stop()).run()
    assert failed.value.code == "folder_unusable"


async def test_a_node_that_does_not_join_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that knows itself from another cluster does not join this one: no reason to end a cluster that works."""

    async def up(data_dir: Path) -> list[str]:
        told: list[str] = []
        stop = Stop()

        def tell(line: str) -> None:
            told.append(line)
            if line.startswith("ready"):
                stop.request("test")

        await Up(Plan(data_dir=data_dir, port=0, nodes=2), tell, stop).run()
        assert not stop.failed
        return told

    one, other = tmp_path / "one", tmp_path / "other"
    assert not any("has not joined" in line for line in await up(one))
    identity = json.loads((one / "nodes" / "node-1" / "identity.json").read_text())
    (other / "nodes" / "node-1").mkdir(parents=True)
    (other / "nodes" / "node-1" / "identity.json").write_text(json.dumps(identity | {"folder": 0}))
    monkeypatch.setattr("services.main.up.NODES_WITHIN_S", 3.0)
    told = await up(other)
    assert f"node-1 has not joined; its log is {other}/logs/node-1.log" in told
    assert not any("node-2 has not" in line for line in told)
    assert any(line.startswith("ready: 1 simulated node") for line in told)


@pytest.mark.parametrize(
    ("changed", "there"),
    [
        ({}, True),
        ({"gpus_out": 1}, False),  # not found clean yet
        ({"gpus_out": 1, "gpus_sick": 1}, True),
        ({"gpus_out": 2, "gpus_sick": 1}, False),
        ({"state": "lost"}, False),
        ({"state": "lost", "standing": "retired"}, True),
    ],
)
def test_a_node_is_there_once_its_gpus_are_in_use_or_out_for_good(changed: dict[str, object], there: bool) -> None:
    """After a restart those that are sick stay out, and a retired node does not come: that is waited for in vain."""
    assert is_there({"state": "up", "standing": "open", "gpus_out": 0, "gpus_sick": 0} | changed) is there


async def test_a_team_is_told_how_to_connect(tmp_path: Path) -> None:
    """Once all is ready: where, as whom, and where its password is, but not the password."""
    told: list[str] = []
    stop = Stop()

    def tell(line: str) -> None:
        told.append(line)
        if line.startswith("ready"):
            stop.request("test")

    await Up(Plan(data_dir=tmp_path, port=0, nodes=0, teams=("red",)), tell, stop).run()
    (line,) = (line for line in told if line.startswith("team "))
    assert line.startswith("team red: NATS nats://127.0.0.1:")
    assert f"as team-red, inbox prefix _INBOX.team-red, its password is in {tmp_path}/credentials.json" in line


async def test_a_stop_before_the_start_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while the servers start: they are ended again, no part was started."""
    told: list[str] = []
    stop = Stop()
    stop.request("test")
    await Up(Plan(data_dir=tmp_path, port=0, nodes=1), told.append, stop).run()
    assert [line.partition(":")[0] for line in told] == ["starting a cluster", "stopped"]
    assert not (tmp_path / "logs" / "control.log").exists()


async def test_parts_that_die_at_every_start_end_it_with_their_last_words(tmp_path: Path) -> None:
    """A cluster that cannot come up says so, instead of trying for ever."""
    told: list[str] = []
    stop = Stop()
    plan = Plan(data_dir=tmp_path, port=0, nodes=1, gpus_per_node=9999)  # more than a node can have: the agent ends
    await Up(plan, told.append, stop).run()
    assert stop.failed
    assert any("does so at every start" in line for line in told)
    assert any("GPUs" in line for line in told)
