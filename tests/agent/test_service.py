"""One agent with real processes and a real NATS: what it starts, stops, reports, survives and leaves behind."""

import asyncio
import json
import os
import signal
import sys

import msgspec
import pytest
from msgspec.structs import replace

from agent import procfs
from agent.records import Records, StartRecord
from events.ask import RefusalCode, Refused
from events.base import GpuUuid, NodeEpoch, RunId
from events.desired import Order
from events.job import Checkpoint, StopCause
from events.node import EndReason, GpusReleased, NodeJoined, ShareEnded, ShareStarted
from tests.agent.conftest import Agents
from tests.agent.control import Control, share_of
from tests.fixtures.waiting import until

PYTHON = (sys.executable, "-I", "-S", "-c")
RUN = RunId("jaa-1")
STUBBORN = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


async def test_a_share_is_started_reported_and_released(agents: Agents, control: Control) -> None:
    """The whole life of a run: every report once, in order, and nothing kept once it has left desired."""
    agents.start()
    gpus = await control.pooled()
    await control.want(share_of(gpus[:2], "true"))

    end = await control.ended(RUN)

    assert (end.reason, end.exit_code, end.rank) == (EndReason.EXITED, 0, -1)
    assert control.order(RUN) == ["ShareStarted", "ShareEnded", "GpusReleased"]
    assert control.told(GpusReleased)[0].slots == 0b11
    folder = agents.data_dir() / "runs" / RUN
    assert folder.exists()
    await control.want()
    await until(lambda: not folder.exists(), what="forgotten")


async def test_ranks_are_told_of_their_gang_and_of_nothing_else(agents: Agents, control: Control) -> None:
    """The usual variables are right, the job's own are there, and the agent's secrets and Python are not."""
    agents.start()
    gpus = await control.pooled()
    code = "import os,sys,json; json.dump(dict(os.environ), open(os.environ['OUT'] + os.environ['RANK'], 'w'))"
    env = {"OUT": str(agents.folder / "env."), "LINES": "a\nb=ü"}
    share = share_of(gpus[:2], *PYTHON, code, env=env)
    await control.want(replace(share, first_rank=2, world_size=4, node_rank=1, nodes=2))
    await control.ended(RUN)

    first, second = (json.loads((agents.folder / f"env.{rank}").read_text()) for rank in (2, 3))

    assert (first["RANK"], first["LOCAL_RANK"], second["RANK"], second["LOCAL_RANK"]) == ("2", "0", "3", "1")
    expected = {
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "12345",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus[:2]),
        "MUSTER_JOB_ID": "jaa",
        "MUSTER_RUN_ID": "jaa-1",
        "MUSTER_ATTEMPT": "1",
        "MUSTER_TEAM": "red",
        "MUSTER_CHECKPOINT_DIR": str(agents.data_dir() / "checkpoints" / "jaa"),
        "MUSTER_CHECKPOINT_FILE": str(agents.data_dir() / "runs" / RUN / "checkpoint"),
        "LINES": "a\nb=ü",
        "HOME": "/root",
    }
    assert expected.items() <= first.items()
    assert {"PYTHONPATH", "MUSTER_NATS_PASSWORD"}.isdisjoint(first)


@pytest.mark.parametrize(
    ("code", "exit_code"), [("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
async def test_a_failed_rank_is_named_with_its_code_and_ends_the_others(
    agents: Agents, control: Control, code: str, exit_code: int
) -> None:
    """The first rank that failed counts, also when a signal ended it; the others do not wait for it for ever."""
    agents.start()
    gpus = await control.pooled()
    body = f"import os,time\nif os.environ['RANK'] == '1': {code}\ntime.sleep(60)"
    await control.want(share_of(gpus[:3], *PYTHON, body))

    end = await control.ended(RUN)

    assert (end.reason, end.exit_code, end.rank) == (EndReason.EXITED, exit_code, 1)
    assert agents.processes() == []


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
async def test_a_program_that_is_not_there_ends_the_rank_as_a_shell_would(
    agents: Agents, control: Control, program: str, code: int
) -> None:
    """The job is wrong, and would be on every node: no failure of ours, and its own output says why."""
    agents.start()
    gpus = await control.pooled()
    await control.want(share_of(gpus[:1], program))

    end = await control.ended(RUN)

    assert (end.reason, end.exit_code) == (EndReason.EXITED, code)
    assert control.order(RUN)[-1] == "GpusReleased"


@pytest.mark.parametrize("contain", [True, False])
async def test_a_stop_ends_a_rank_that_ignores_it_and_the_daemon_it_left(
    agents: Agents, control: Control, *, contain: bool
) -> None:
    """KILL reaches what ignores TERM and what forked twice into a session of its own, with control groups or without.

    Nothing is released while any of it lives.
    """
    agents.start(contain=contain)
    gpus = await control.pooled()
    daemon = (
        "import os,signal,time\n"
        "if os.fork() == 0:\n os.setsid()\n if os.fork(): os._exit(0)\n"
        "signal.signal(15, signal.SIG_IGN)\n"
        "open(f'{os.environ[\"OUT\"]}.{os.getpid()}', 'w').close()\n"
        "time.sleep(60)"
    )
    share = share_of(gpus[:1], *PYTHON, daemon, env={"OUT": str(agents.folder / "up")}, stop_grace_s=1)
    await control.want(share)
    await control.heard(ShareStarted, RUN)
    await until(lambda: len(list(agents.folder.glob("up.*"))) == 2, what="both are up")
    pids = [int(path.suffix[1:]) for path in agents.folder.glob("up.*")]

    await control.want(replace(share, order=Order.STOP, cause=StopCause.CANCEL))
    while not control.told(GpusReleased):
        assert not control.told(ShareEnded) or not any(map(procfs.stat, pids))
        await asyncio.sleep(0.01)

    end = await control.ended(RUN)
    assert (end.reason, end.exit_code) == (EndReason.STOPPED, 137)
    assert agents.processes() == []


async def test_a_daemon_of_a_rank_that_has_exited_is_ended(agents: Agents, control: Control) -> None:
    """What a rank leaves behind gets TERM before its exit is told."""
    agents.start()
    gpus = await control.pooled()
    code = "import os,time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(60)"
    await control.want(share_of(gpus[:1], *PYTHON, code))

    end = await control.ended(RUN)

    assert (end.reason, end.exit_code) == (EndReason.EXITED, 0)
    assert agents.processes() == []


async def test_a_job_with_a_checkpoint_is_warned_told_why_and_given_time(agents: Agents, control: Control) -> None:
    """The signal comes first, the stop file says why and until when, and a job that saves and exits is not hurt."""
    agents.start()
    gpus = await control.pooled()
    code = (
        "import os,signal,sys\n"
        "def save(*_):\n"
        " open(os.environ['OUT'], 'w').write(open(os.environ['MUSTER_STOP_FILE']).read())\n"
        " sys.exit(0)\n"
        "signal.signal(signal.SIGUSR2, save)\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()"
    )
    saved = agents.folder / "saved"
    share = share_of(gpus[:1], *PYTHON, code, checkpoint=Checkpoint(grace_s=30), env={"OUT": str(saved)})
    await control.want(share)
    log = agents.data_dir() / "runs" / RUN / "rank-0.log"
    await until(lambda: log.exists() and log.read_bytes(), what="it handles the signal")

    await control.want(replace(share, order=Order.STOP, cause=StopCause.TIME_LIMIT))

    end = await control.ended(RUN)
    assert (end.reason, end.exit_code) == (EndReason.STOPPED, 0)
    told = json.loads(saved.read_text())
    assert told["reason"] == "time_limit"
    assert told["deadline"].endswith("+00:00")


async def test_an_agent_killed_in_the_middle_changes_nothing_for_its_ranks(agents: Agents, control: Control) -> None:
    """The next agent finds the rank, notices its exit, and reports each thing once, in the same epoch."""
    child = await agents.start_apart()
    gpus = await control.pooled()
    code = "import os,time\nprint(os.getpid(), flush=True)\nwhile not os.path.exists(os.environ['GO']): time.sleep(.01)\nos._exit(7)"
    go = agents.folder / "go"
    await control.want(share_of(gpus[:1], *PYTHON, code, env={"GO": str(go)}))
    await control.heard(ShareStarted, RUN)
    log = agents.data_dir() / "runs" / RUN / "rank-0.log"
    await until(lambda: log.read_bytes().endswith(b"\n"), what="the rank says its pid")
    before = procfs.stat(int(log.read_text()))
    assert before is not None

    child.kill()
    await child.wait()
    after = procfs.stat(int(log.read_text()))
    assert after is not None
    assert (after.pid, after.start_ticks) == (before.pid, before.start_ticks), "the same process; it runs or sleeps"
    agents.start()
    await asyncio.sleep(0)
    go.touch()

    end = await control.ended(RUN)
    assert (end.reason, end.exit_code, end.rank) == (EndReason.EXITED, 7, 0)
    assert control.order(RUN) == ["ShareStarted", "ShareEnded", "GpusReleased"]
    assert log.read_text().count("\n") == 1  # started once
    assert len(control.told(NodeJoined)) == 1


async def test_a_rank_that_ended_while_no_agent_was_there_is_reported(agents: Agents, control: Control) -> None:
    """Its supervisor has written down how it ended; SIGTERM ends an agent and nothing else."""
    child = await agents.start_apart()
    gpus = await control.pooled()
    code = "import os,time\nwhile not os.path.exists(os.environ['GO']): time.sleep(.01)\nos._exit(5)"
    go = agents.folder / "go"
    await control.want(share_of(gpus[:1], *PYTHON, code, env={"GO": str(go)}))
    await control.heard(ShareStarted, RUN)
    child.terminate()
    assert await child.wait() == 0
    assert agents.processes()

    go.touch()
    await until(lambda: not agents.processes(), what="the rank ended")
    agents.start()

    assert (await control.ended(RUN)).exit_code == 5


async def test_a_supervisor_that_is_killed_takes_nothing_with_it_unnoticed(agents: Agents, control: Control) -> None:
    """Its rank is ended, counted as killed, and nothing of it holds the GPU when that is told."""
    agents.start(contain=False)
    gpus = await control.pooled()
    await control.want(share_of(gpus[:1], *PYTHON, STUBBORN, stop_grace_s=0))
    await control.heard(ShareStarted, RUN)
    pids = json.loads((agents.data_dir() / "runs" / RUN / "rank-0.lock").read_text())

    os.kill(pids["supervisor"], signal.SIGKILL)

    end = await control.ended(RUN)
    assert (end.reason, end.exit_code, end.rank) == (EndReason.NODE_REBOOTED, 137, 0), "no word of the rank itself"
    assert agents.processes() == []


async def test_a_stop_of_a_run_never_seen_is_released_and_never_started(agents: Agents, control: Control) -> None:
    """Released at once, and not started even if it is wanted again by mistake."""
    agents.start()
    gpus = await control.pooled()
    ran = agents.folder / "ran"
    share = share_of(gpus[:1], "touch", str(ran))
    await control.want(replace(share, order=Order.STOP, cause=StopCause.CANCEL))
    assert (await control.ended(RUN)).reason is EndReason.NEVER_STARTED

    await control.want(share, share_of(gpus[1:2], "true", job="jbb"))
    await control.ended(RunId("jbb-1"))

    assert not ran.exists()
    assert control.order(RUN) == ["ShareEnded", "GpusReleased"]


async def test_a_run_of_another_boot_ended_with_it_and_is_not_started_again(agents: Agents, control: Control) -> None:
    """A record from before a reboot is reported as such, as long as it is named."""
    data_dir = agents.data_dir()
    ran = agents.folder / "ran"
    share = share_of((GpuUuid("GPU-gone"),), "touch", str(ran))
    start = StartRecord(share=share, epoch=NodeEpoch(1), boot_id="another", instance="i", at_s=1.0)
    folder = Records(data_dir).begin(start).folder
    (folder / "rank-0.lock").write_text('{"supervisor":1,"rank":1,"ticks":1}')
    unnamed = (
        Records(data_dir)
        .begin(msgspec.structs.replace(start, share=share_of((GpuUuid("GPU-gone"),), "true", job="jold")))
        .folder
    )
    agents.start()
    await control.pooled()

    await control.want(share)

    assert (await control.ended(RUN)).reason is EndReason.NODE_REBOOTED
    await until(lambda: not unnamed.exists(), what="a run that nobody names is forgotten")
    assert not ran.exists()
    assert control.told(ShareEnded, RunId("jold-1")) == []


async def test_nothing_older_is_obeyed(agents: Agents, control: Control) -> None:
    """A value older than one seen before changes nothing, also after a restart."""
    task = agents.start()
    gpus = await control.pooled()
    old = await control.want()
    share = share_of(gpus[:1], "sleep", "60")
    await control.want(share)
    await control.heard(ShareStarted, RUN)

    await control.write(old)  # would be an order to end the run
    await control.write(replace(old, shares=(share_of(gpus[1:2], "true", job="jold"),)))
    await agents.stop(task)
    agents.start()
    await asyncio.sleep(1.5)  # it reads every second

    assert control.told(ShareEnded) == []
    assert control.told(ShareStarted, RunId("jold-1")) == []
    await control.want(replace(share, order=Order.STOP))
    await control.ended(RUN)


async def test_of_two_agents_with_one_node_id_the_newer_one_counts(agents: Agents, control: Control) -> None:
    """The older one ends what it runs, and neither starts nor reports anything any more."""
    agents.start()
    gpus = await control.pooled()
    await control.want(share_of(gpus[:1], "sleep", "60"))
    await control.heard(ShareStarted, RUN)
    first = control.joined
    agents.start(agents.folder / "agents" / "other")
    await until(lambda: len(control.told(NodeJoined)) == 2, what="the second joins")

    await control.want(share_of(gpus[1:2], "true", job="jbb"))

    await control.ended(RunId("jbb-1"))
    await until(lambda: not agents.processes(), what="the first has ended its run")
    assert first is not None
    assert {one.instance for one in control.told(NodeJoined)[1:]} != {first.instance}
    assert control.told(ShareEnded, RUN) == []
    assert control.order(RunId("jbb-1")).count("ShareStarted") == 1


async def test_reports_are_repeated_until_they_are_answered(agents: Agents, control: Control) -> None:
    """An answer that was lost, a busy gate: the report comes again, and after the answer no more."""
    agents.start()
    gpus = await control.pooled()
    control.refusal = Refused(code=RefusalCode.BUSY, message="later")
    await control.want(share_of(gpus[:1], "true"))
    before = control.messages
    await until(lambda: control.messages >= before + 2, what="it is sent again")
    assert control.told(ShareStarted) == []

    control.refusal = None

    await control.ended(RUN)
    assert control.order(RUN) == ["ShareStarted", "ShareEnded", "GpusReleased"]


async def test_a_join_without_an_answer_makes_a_newer_epoch_and_harms_nothing(agents: Agents, control: Control) -> None:
    """Desired names an epoch that the agent was never told of: it joins anew, and works in that life."""
    agents.start()
    gpus = await control.pooled()
    control.forge_epoch()  # of a report that arrived late, behind the agent's back
    await control.want()

    await until(lambda: len(control.told(NodeJoined)) == 2, what="it joins again")
    await control.want(share_of(gpus[:1], "true"))

    await control.ended(RUN)
    assert control.told(ShareStarted)[0].node_epoch == control.epoch
