"""What an agent reports of its GPUs and of what the kernel did, through a real server, with real ranks."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.injections import Injection, put
from agent.kernel_log import KMSG
from agent.records import Records, pids_of
from events.base import GpuUuid, RunId
from events.desired import Order
from events.gpu import GpuRecovered, GpuResetFailed, GpuSignal, GpuSignalled, Recovery
from events.job import StopCause
from events.node import GpusReleased, NodeJoined, RanksUnkillable, ShareEnded, ShareStarted
from tests.agent.conftest import Agents
from tests.agent.control import Control, share_of
from tests.fixtures.waiting import until

PYTHON = (sys.executable, "-I", "-S", "-c")
RUN = RunId("jaa-1")
FREEZER, MEMORY = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/memory")
MEBIBYTE = 1 << 20


async def numbered(control: Control) -> tuple[GpuUuid, ...]:
    """The GPUs of the node in their order, once all were found clean."""
    await control.pooled()
    assert control.joined is not None
    return control.joined.gpu_uuids


async def test_what_a_gpu_shows_is_reported_once(agents: Agents, control: Control) -> None:
    """Also by an agent that was killed before its report was answered, and by the one after that."""
    child = await agents.start_apart()
    gpus = await numbered(control)
    control.silent = True
    put(agents.data_dir(), Injection(gpu=2, signal=GpuSignal.XID, code=48), 1.0)
    await control.heard(GpuSignalled)
    child.kill()
    await child.wait()
    first = control.told(GpuSignalled)[0]
    control.reports.clear()
    control.silent = False

    child = await agents.start_apart()
    again = await control.heard(GpuSignalled)
    await asyncio.sleep(0.5)
    child.kill()
    await child.wait()
    agents.start()
    put(agents.data_dir(), Injection(gpu=1, signal=GpuSignal.REMAP_FAILED), 2.0)
    await until(lambda: len(control.told(GpuSignalled)) == 2, what="the next sign")

    assert again == first, "the same to the byte: a gate that took it the first time knows it"
    assert (first.gpu_uuid, first.signal, first.code, first.source) == (gpus[2], GpuSignal.XID, 48, "injected")
    assert (first.node_epoch, first.ended) == (control.epoch, False)
    assert [one.signal for one in control.told(GpuSignalled)] == [GpuSignal.XID, GpuSignal.REMAP_FAILED]
    assert control.told(NodeJoined) == []


async def test_a_gpu_is_reset_when_the_run_that_has_it_is_gone(agents: Agents, control: Control) -> None:
    """Not before; beside runs on the other GPUs; and what the driver then withdraws is reported as well."""
    agents.start()
    gpus = await numbered(control)
    sick, other = share_of(gpus[:1], "sleep", "60"), share_of(gpus[1:2], "sleep", "60", job="jbb")
    await control.want(sick, other)
    await control.heard(ShareStarted, RUN)
    put(agents.data_dir(), Injection(gpu=0, signal=GpuSignal.RECOVERY_ACTION), 1.0)
    await control.heard(GpuSignalled)

    await control.want(replace(sick, order=Order.STOP, cause=StopCause.GPU), other, resets=gpus[:1])
    await control.heard(GpusReleased, RUN)
    await asyncio.sleep(0.5)
    assert control.told(GpuRecovered) == [], "the share is still named: its release may not be in the log"
    await control.want(other, resets=gpus[:1])

    recovered = await control.heard(GpuRecovered)
    assert (recovered.gpu_uuid, recovered.means) == (gpus[0], Recovery.RESET)
    await asyncio.sleep(0.5)
    assert len(control.told(GpuRecovered)) == 1, "once, while it is still wanted"
    assert [one.run_id for one in control.told(ShareEnded)] == [RUN]
    await control.want(replace(other, order=Order.STOP))
    await control.ended(RunId("jbb-1"))


async def test_a_gpu_that_is_gone_cannot_be_reset_and_nothing_starts_on_it(agents: Agents, control: Control) -> None:
    """Both are reported; the run that had it ends all the same."""
    agents.start()
    gpus = await numbered(control)
    put(agents.data_dir(), Injection(gpu=0, signal=GpuSignal.XID, code=79), 1.0)
    await until(lambda: len(control.told(GpuSignalled)) == 2, what="the error, and that it is missing")

    await control.want(share_of(gpus[:1], "true"), resets=gpus[:1])
    end = await control.ended(RUN)
    assert (end.reason.value, end.message) == ("start_failed", f"GPU {gpus[0]} does not answer")
    await until(lambda: len(control.told(GpuSignalled)) == 3, what="again: who gives it away believes it sound")
    await control.want(resets=gpus[:1])
    assert (await control.heard(GpuResetFailed)).message == "the GPU is not on its bus"


@pytest.fixture
def frozen() -> Iterator[Path]:
    """A control group whose processes take no signal, not even KILL: as those do that wait for broken hardware."""
    group = FREEZER / f"muster-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no freezer of control groups can be used here")
    (group / "freezer.state").write_text("FROZEN")
    yield group
    (group / "freezer.state").write_text("THAWED")
    group.rmdir()


async def test_a_rank_that_outlives_kill_is_reported_and_keeps_its_gpu(
    agents: Agents, control: Control, frozen: Path
) -> None:
    """Once. It is released when it is really gone, however late that is."""
    agents.start(contain=False, unkillable_after_s=1.0)
    gpus = await numbered(control)
    share = share_of(gpus[:1], "sleep", "60", stop_grace_s=0)
    await control.want(share)
    await control.heard(ShareStarted, RUN)
    pids = pids_of(Records(agents.data_dir()).runs[RUN], 0)
    assert pids is not None
    (frozen / "cgroup.procs").write_text(str(pids.rank))

    await control.want(replace(share, order=Order.STOP, cause=StopCause.CANCEL))
    report = await control.heard(RanksUnkillable, RUN)
    assert (report.pids, report.waited_s >= 1) == ((pids.rank,), True)
    await asyncio.sleep(1.5)
    assert (len(control.told(RanksUnkillable)), control.told(ShareEnded)) == (1, [])

    (frozen / "freezer.state").write_text("THAWED")
    assert (await control.ended(RUN)).exit_code == 137


@pytest.fixture
def small() -> Iterator[Path]:
    """A control group with hardly any memory."""
    group = MEMORY / f"muster-test-{os.getpid()}"
    if not os.access(KMSG, os.R_OK):
        pytest.skip("the kernel's log cannot be read here")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("memory cannot be limited here by a control group of the first version")
    (group / "memory.limit_in_bytes").write_text(str(16 * MEBIBYTE))
    with suppress(OSError):
        (group / "memory.memsw.limit_in_bytes").write_text(str(16 * MEBIBYTE))
    yield group
    group.rmdir()


async def test_a_rank_that_the_kernel_killed_for_want_of_memory_is_reported_so(
    agents: Agents, control: Control, small: Path
) -> None:
    """By the kernel's own word. One that was killed by somebody else is not."""
    agents.start()
    gpus = await numbered(control)
    code = (
        "import os\n"
        "open(os.environ['GROUP'], 'w').write(str(os.getpid()))\n"
        "hoard = [b'x' * (1 << 20) for _ in range(1 << 10)]\n"
    )
    short = share_of(gpus[:1], *PYTHON, code, env={"GROUP": str(small / "cgroup.procs")})
    killed = share_of(gpus[1:2], *PYTHON, "import os; os.kill(os.getpid(), 9)", job="jbb")

    await control.want(short, killed)

    end, other = await control.ended(RUN), await control.ended(RunId("jbb-1"))
    assert (end.exit_code, end.out_of_memory) == (137, True)
    assert (other.exit_code, other.out_of_memory) == (137, False)
