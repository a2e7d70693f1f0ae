"""Stops: every job is told why and until when, all ranks at once, and a GPU is released when nothing holds it."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent import procfs
from events.ask import AgentReport
from events.base import RunId, SlotMask
from events.desired import Order
from events.job import Checkpoint, StopCause
from events.node import GpusReleased, ShareStarted
from tests.agent.conftest import Agents
from tests.agent.control import Control, share_of
from tests.fixtures.waiting import until

PYTHON = (sys.executable, "-I", "-S", "-c")
RUN = RunId("jaa-1")
GRACE_S, CHECKPOINT_S = 7, 30
SAVE = (
    "import os,signal,sys\n"
    "def save(*_):\n"
    " os.rename(os.environ['MUSTER_STOP_FILE'], os.environ['OUT'])\n"
    " sys.exit(0)\n"
    "signal.signal(signal.SIGUSR2, save)\n"
    "open(os.environ['OUT'] + '.up', 'w').close()\n"
    "while True: signal.pause()"
)
BROOD = (  # a rank that ignores TERM, with children that do: one beside it, one in a session of its own, one that forked twice
    "import os,signal,time\n"
    "def child(*, session, again):\n"
    " if os.fork(): return\n"
    " if session: os.setsid()\n"
    " if again and os.fork(): os._exit(0)\n"
    " note(); time.sleep(60)\n"
    "def note():\n"
    " open(f'{os.environ[\"OUT\"]}.{os.getpid()}', 'w').close()\n"
    "me = os.getpid()\n"
    "def told(*_):\n"
    " if os.getpid() == me: open(f'{os.environ[\"OUT\"]}-term.{os.getpid()}', 'w').write(str(time.monotonic()))\n"
    "signal.signal(15, told)\n"
    "child(session=False, again=False); child(session=True, again=False); child(session=True, again=True)\n"
    "note()\n"
    "while True: time.sleep(60)"
)


async def test_every_job_that_is_stopped_is_told_why_and_until_when(agents: Agents, control: Control) -> None:
    """For each cause that there is: by the signal it asked for, with the whole of its graces to go."""
    agents.start(gpus=f"simulated:{len(StopCause)}")
    gpus = await control.pooled()
    told = {cause: agents.folder / cause.value for cause in StopCause}
    shares = [
        share_of(
            (gpu,),
            *PYTHON,
            SAVE,
            job=f"j{number:02}",
            slots=SlotMask(1 << number),
            stop_grace_s=GRACE_S,
            checkpoint=Checkpoint(grace_s=CHECKPOINT_S),
            env={"OUT": str(told[cause])},
        )
        for number, (gpu, cause) in enumerate(zip(gpus, StopCause, strict=True))
    ]
    await control.want(*shares)
    await until(lambda: all(Path(f"{path}.up").exists() for path in told.values()), what="all handle the signal")

    before = datetime.now(UTC)
    await control.want(
        *(replace(share, order=Order.STOP, cause=cause) for share, cause in zip(shares, StopCause, strict=True))
    )
    await until(lambda: len(control.told(GpusReleased)) == len(shares), what="all have saved and ended")

    for cause, path in told.items():
        said = json.loads(path.read_text())
        left_s = (datetime.fromisoformat(said["deadline"]) - before).total_seconds()
        assert said["reason"] == cause.value
        assert GRACE_S + CHECKPOINT_S - 1 <= left_s <= GRACE_S + CHECKPOINT_S + 5


@pytest.mark.parametrize("contain", [True, False])
async def test_a_cancel_frees_the_gpus_whatever_the_ranks_have_become(
    agents: Agents, control: Control, *, contain: bool
) -> None:
    """TERM reaches all ranks at once; when their GPUs are released, no process sees them and none of theirs lives."""
    agents.start(contain=contain)
    gpus = await control.pooled()
    out = agents.folder / "out"
    share = share_of(gpus[:3], *PYTHON, BROOD, env={"OUT": str(out)}, stop_grace_s=1)
    await control.want(share)
    await control.heard(ShareStarted, RUN)
    await until(lambda: len(list(agents.folder.glob("out.*"))) == 12, what="three ranks with three children each")
    pids = [int(path.suffix[1:]) for path in agents.folder.glob("out.*")]
    assert all(map(procfs.is_alive, pids))

    living: list[int] = []
    seen: set[str] = set()

    class Reports(list[AgentReport]):
        """Looks at the processes in the moment in which the release arrives."""

        def append(self, report: AgentReport) -> None:
            if isinstance(report, GpusReleased):
                living.extend(filter(procfs.is_alive, pids))
                for _, env in procfs.marked(mark):
                    seen.update(env.get(b"CUDA_VISIBLE_DEVICES", b"").decode().split(","))
            super().append(report)

    mark = f"MUSTER_AGENT_DATA={agents.data_dir()}".encode()
    control.reports = Reports(control.reports)
    await control.want(replace(share, order=Order.STOP, cause=StopCause.CANCEL))

    end = await control.ended(RUN)
    assert (end.exit_code, living, seen & set(gpus)) == (137, [], set())
    told_s = [float(path.read_text()) for path in agents.folder.glob("out-term.*")]
    assert len(told_s) == 3
    assert max(told_s) - min(told_s) < 0.5
