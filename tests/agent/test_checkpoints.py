"""What a job says of its checkpoints, and what of that is told: each number once, never a smaller one, not too often."""

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.checkpoints import number_in
from events.base import RunId
from events.node import CheckpointSaved, ShareEnded
from tests.agent.conftest import Agents
from tests.agent.control import Control, share_of
from tests.fixtures.waiting import until

PYTHON = (sys.executable, "-I", "-S", "-c")
RUN = RunId("jaa-1")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"7", 7),
        (b" 12\n", 12),
        (b"0", 0),
        (b"", 0),
        (b"-3", 0),
        (b"1e3", 0),
        (b"12 13", 0),
        ("٣".encode(), 0),  # a digit, and none of ours
        (b"2147483647", 2147483647),
        (b"2147483648", 0),
        (b"0" * 31 + b"7", 0),  # cut off, who knows what followed
        (b"9" * 4096, 0),
    ],
)
def test_a_number_is_read_and_all_else_is_none(text: bytes, number: int, tmp_path: Path) -> None:
    """Text that anybody may have written."""
    (tmp_path / "checkpoint").write_bytes(text)
    assert number_in(tmp_path / "checkpoint") == number


def test_what_is_no_file_is_no_number_and_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe that nobody writes to would stop the agent; a link could lead anywhere."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "target").write_text("7")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert [number_in(tmp_path / name) for name in ("pipe", "link", ".", "nothing")] == [0, 0, 0, 0]


@pytest.mark.parametrize(("last", "restart", "told"), [(5, False, [3, 5]), (2, True, [3])])
async def test_a_checkpoint_is_told_once_and_the_last_one_before_the_end(
    agents: Agents, control: Control, last: int, told: list[int], *, restart: bool
) -> None:
    """With the run and the life of the node; a smaller number is ignored, and a restart tells nothing again."""
    task = agents.start()
    gpus = await control.pooled()
    code = (
        "import os,time\n"
        "def say(n):\n"
        " part = os.environ['MUSTER_CHECKPOINT_FILE'] + '.part'\n"
        " open(part, 'w').write(str(n)); os.rename(part, os.environ['MUSTER_CHECKPOINT_FILE'])\n"
        "say(3)\n"
        "while not os.path.exists(os.environ['GO']): time.sleep(.01)\n"
        "say(os.environ['LAST'])\n"
    )
    go = agents.folder / "go"
    await control.want(share_of(gpus[:1], *PYTHON, code, env={"GO": str(go), "LAST": str(last)}))
    first = await control.heard(CheckpointSaved, RUN)
    assert (first.number, first.node_epoch) == (3, control.epoch)
    noted = agents.data_dir() / "runs" / RUN / "saved"
    await until(lambda: noted.exists() and noted.read_text() == "3", what="it is noted")
    if restart:
        await agents.stop(task)
        agents.start()
    go.touch()
    await control.ended(RUN)
    kinds = [type(one) for one in control.reports if getattr(one, "run_id", "") == RUN]
    assert [one.number for one in control.told(CheckpointSaved, RUN)] == told
    assert kinds.index(ShareEnded) == len(kinds) - 2, "no checkpoint after the end"


async def test_only_rank_0_speaks_for_the_run(agents: Agents, control: Control) -> None:
    """What the shares of other nodes write is not looked at."""
    agents.start()
    gpus = await control.pooled()
    code = "import os; open(os.environ['MUSTER_CHECKPOINT_FILE'], 'w').write('4')"
    await control.want(replace(share_of(gpus[:1], *PYTHON, code), first_rank=1, node_rank=1, nodes=2, world_size=2))
    await control.ended(RUN)
    assert control.told(CheckpointSaved) == []
