"""Who an agent is: the same one after a restart, another one in a copy of its files and after a boot."""

import shutil

import msgspec
from msgspec.structs import replace

from agent.records import Identity
from events.base import RunId
from events.node import EndReason, NodeJoined, ShareStarted
from tests.agent.conftest import Agents
from tests.agent.control import Control, share_of
from tests.fixtures.waiting import until

RUN = RunId("jaa-1")


async def test_a_copy_of_a_data_directory_is_another_agent(agents: Agents, control: Control) -> None:
    """It takes the node over; the one that was copied ends what it runs, so that no rank ever runs twice."""
    agents.start()
    gpus = await control.pooled()
    share = share_of(gpus[:1], "sleep", "60")
    await control.want(share)
    await control.heard(ShareStarted, RUN)
    first = control.joined
    assert first is not None
    copy = agents.folder / "agents" / "copy"
    shutil.copytree(agents.data_dir(), copy, ignore=shutil.ignore_patterns("lock"))

    agents.start(copy)
    await until(lambda: len(control.told(NodeJoined)) == 2)
    assert control.told(NodeJoined)[1].instance != first.instance
    await control.want()
    await until(lambda: not agents.processes(), what="the first agent has ended its ranks")
    await control.want(again := share_of(gpus[:1], "true", job="again"))
    assert (await control.ended(again.run_id)).reason is EndReason.EXITED
    assert len(control.told(NodeJoined)) == 2


async def test_another_boot_is_another_agent(agents: Agents, control: Control) -> None:
    """So that the files of one machine, brought up on a second, do not make the two of them join in turn for ever."""
    task = agents.start()
    await control.pooled()
    await agents.stop(task)
    file = agents.data_dir() / "identity.json"
    before = msgspec.json.decode(file.read_bytes(), type=Identity)
    file.write_bytes(msgspec.json.encode(replace(before, boot_id="another")))

    agents.start()
    await until(lambda: len(control.told(NodeJoined)) == 2)
    assert control.told(NodeJoined)[1].instance != before.instance


async def test_a_joining_from_before_a_boot_that_comes_late_is_answered_by_a_new_one(
    agents: Agents, control: Control
) -> None:
    """A gate that slept records it after that of the new boot. Of anybody else's the agent would fall silent for good."""
    task = agents.start()
    await control.pooled()
    await agents.stop(task)
    file = agents.data_dir() / "identity.json"
    before = msgspec.json.decode(file.read_bytes(), type=Identity)
    file.write_bytes(msgspec.json.encode(replace(before, boot_id="another")))
    agents.start()
    await until(lambda: len(control.told(NodeJoined)) == 2)

    control.forge_epoch()
    await control.want(instance=before.instance)
    await until(lambda: len(control.told(NodeJoined)) == 3)
    assert control.told(NodeJoined)[2].instance == control.told(NodeJoined)[1].instance
    await control.want(share := share_of(await control.pooled(), "true"))
    await control.ended(share.run_id)
