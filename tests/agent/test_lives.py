"""Lives of a node: given up, forgotten, taken over, cut off, begun anew; with real ranks and a real server."""

import asyncio
import sys
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from events.base import RunId
from events.desired import Heartbeat, Order
from events.job import Ranks
from events.node import GpusFoundClean, NodeJoined, ShareEnded, ShareStarted
from runtime.nats import Connection
from tests.agent.conftest import Agents
from tests.agent.control import NODE, Control, log_of, settings_of, share_of
from tests.fixtures.waiting import until

PYTHON = (sys.executable, "-I", "-S", "-c")
RUN = RunId("jaa-1")
STUBBORN = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


async def test_a_node_declared_lost_ends_what_runs_and_joins_anew(agents: Agents, control: Control) -> None:
    """Its ranks belong to a life that is over; only then it comes back."""
    agents.start()
    gpus = await control.pooled()
    await control.want(share_of(gpus[:1], "sleep", "60"))
    await control.heard(ShareStarted, RUN)

    await control.want(lost=True)
    await until(lambda: len(control.told(NodeJoined)) == 2, what="it joins again")

    assert agents.processes() == []
    assert control.told(ShareEnded) == []


async def test_a_node_that_the_log_does_not_know_joins_anew(agents: Agents, control: Control) -> None:
    """The store of the servers was emptied: what ran for the old log is ended, and the new one is joined and obeyed."""
    agents.start(lost_after_s=2.0, reread_every_s=0.5)
    gpus = await control.pooled()
    await control.want(share_of(gpus[:1], "sleep", "60"))
    await control.heard(ShareStarted, RUN)

    await control.forget()
    await until(lambda: len(control.told(NodeJoined)) == 2, what="it joins again")
    assert agents.processes() == []
    await until(lambda: len(control.told(GpusFoundClean)) == 2, what="its GPUs are clean")

    await control.want(share_of(gpus[:1], "true", job="jbb"))
    await control.ended(RunId("jbb-1"))


async def test_leftovers_without_a_record_are_ended_before_gpus_are_clean(agents: Agents, control: Control) -> None:
    """Somebody removed the data directory while a run went on: it is ended, and the GPUs come back after."""
    task = agents.start(contain=False)
    gpus = await control.pooled()
    await control.want(share_of(gpus[:1], *PYTHON, STUBBORN))
    await control.heard(ShareStarted, RUN)
    await agents.stop(task)
    for path in sorted(agents.data_dir().rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    control.reports.clear()

    agents.start()

    assert await control.pooled() == gpus
    assert agents.processes() == []


async def test_a_node_cut_off_ends_what_may_be_started_elsewhere(agents: Agents, control: Control) -> None:
    """Without contact for so long that it may be given up, it ends its runs itself; a shorter absence ends none."""
    agents.start(lost_after_s=4.0)
    gpus = await control.pooled()
    await control.want(share_of(gpus[:1], "sleep", "60", stop_grace_s=1))
    await control.heard(ShareStarted, RUN)

    await agents.server.stop()
    await asyncio.sleep(1.0)
    assert agents.processes()
    seconds = await until(lambda: not agents.processes(), what="it is ended")

    assert 0.5 < seconds < 3.0


async def test_ranks_per_node_see_all_gpus_of_their_share(agents: Agents, control: Control) -> None:
    """One process a node, in a fresh folder of the run's, which is removed when nothing was left in it."""
    agents.start()
    gpus = await control.pooled()
    code = "import os; open(os.environ['OUT'], 'w').write(os.environ['CUDA_VISIBLE_DEVICES'] + ' ' + os.getcwd())"
    out = agents.folder / "out"
    share = share_of(gpus, *PYTHON, code, env={"OUT": str(out)}, ranks=Ranks.PER_NODE, local_size=1, world_size=1)
    await control.want(share)
    await control.ended(RUN)

    assert out.read_text() == f"{','.join(gpus)} {agents.data_dir() / 'work' / RUN}"
    await control.want()
    await until(lambda: not (agents.data_dir() / "work" / RUN).exists(), what="removed")


async def test_output_is_shipped_whole_and_in_order_across_a_restart(
    agents: Agents, control: Control, nats_connection: Connection
) -> None:
    """What came before the agent was killed, meanwhile, and after: each byte once, for a reader that minds offsets."""
    child = await agents.start_apart()
    gpus = await control.pooled()
    code = (
        "import os,time\n"
        "for part in range(3):\n"
        " for line in range(20000): print(part, line)\n"
        " print(end='', flush=True)\n"
        " while not os.path.exists(f'{os.environ[\"GO\"]}{part}'): time.sleep(.01)"
    )
    go = agents.folder / "go"
    expected = "".join(f"{part} {line}\n" for part in range(3) for line in range(20000)).encode()
    async with log_of(nats_connection, RUN) as output:
        await control.want(share_of(gpus[:1], *PYTHON, code, env={"GO": str(go)}))
        await until(output, what="the first output")
        child.kill()
        await child.wait()
        for part in range(3):
            (agents.folder / f"go{part}").touch()
        await until(lambda: not agents.processes(), what="the rank ended")
        assert output() != expected
        agents.start()
        await control.ended(RUN)

        assert output() == expected


async def test_heartbeats_name_the_life_and_the_runs(
    agents: Agents, control: Control, nats_connection: Connection
) -> None:
    """What the control plane judges by."""
    beats: list[Heartbeat] = []

    async def take(message: object) -> None:
        beats.append(msgspec.json.decode(message.data, type=Heartbeat))  # type: ignore[attr-defined]

    await nats_connection.subscribe(f"muster.main.hb.{NODE}", cb=take)
    agents.start()
    gpus = await control.pooled()
    share = share_of(gpus[:1], "sleep", "60")
    await control.want(share)
    await until(lambda: any(beat.runs == 1 for beat in beats), what="a beat with a run")

    assert control.joined is not None
    told = {(beat.node_id, beat.epoch, beat.instance, beat.version) for beat in beats}
    assert told == {(NODE, control.epoch, control.joined.instance, control.joined.agent_version)}
    assert all(beat.at is not None and abs((beat.at - datetime.now(UTC)).total_seconds()) < 60 for beat in beats)
    assert {beat.patience_s for beat in beats} == {90.0}, "nobody has said how long it is waited for"
    await control.want(replace(share, order=Order.STOP))
    await control.ended(RUN)


async def test_a_data_directory_serves_one_agent_of_one_node(agents: Agents, control: Control) -> None:
    """A second agent on it, or one of another node, is told so."""
    task = agents.start()
    await control.pooled()

    with pytest.raises(Exception, match="in use by process"):
        await agents.start()
    await agents.stop(task)
    with pytest.raises(Exception, match="belongs to node 'node-1', not 'node-2'"):
        await agents.start(agents.data_dir(), node_id="node-2")
    assert settings_of(agents.server, agents.data_dir()).node_id == NODE
