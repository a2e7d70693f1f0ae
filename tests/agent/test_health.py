"""What an agent knows of its GPUs and has to tell of them, over restarts and boots; and how it resets them."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.core.resets import AGAIN_FIRST_S, TRIES_MAX
from agent.core.signs import Recovered, ResetFailed, Sign, Word
from agent.health import TELLINGS_MAX, GpuHealth
from agent.injections import Injection, put
from agent.simulated import SimulatedGpus
from events.base import NodeId
from events.gpu import GpuSignal, Recovery
from runtime.clock import ManualClock
from tests.fixtures.waiting import until


class Life:
    """An agent's view of simulated GPUs, from its start on; another one on the same folder is the next agent."""

    def __init__(self, folder: Path, clock: ManualClock | None = None, boot_id: str = "b1") -> None:
        self.folder = folder
        self.clock = clock or ManualClock()
        self.gpus = SimulatedGpus(NodeId("n"), 4, "h100", folder)
        self.health = GpuHealth(folder, self.gpus, boot_id, self.clock)
        self.put = 0

    async def shows(self, looks: int = 1, **fields: object) -> list[Word]:
        """All that is to be told after something was injected, if anything was, and so many looks."""
        if fields:
            self.put += 1
            put(self.folder, Injection(**fields), float(self.put))  # type: ignore[arg-type]
        for _ in range(looks):
            await self.health.look()
        return self.words

    @property
    def words(self) -> list[Word]:
        """What is to be told."""
        return [telling.word for telling in self.health.tellings]

    def tell(self) -> None:
        """The gate has accepted all of it."""
        for telling in self.health.tellings:
            self.health.accepted(telling.number)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Looks go on until that is so."""
        await self.running(until(holds))

    async def running(self, work: Awaitable[object]) -> None:
        """Looks and resets go on while something is done."""
        task = asyncio.create_task(self.health.run(0.01, lambda: None))
        await work
        task.cancel()


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Of an agent that has just started."""
    return Life(tmp_path)


async def test_what_was_seen_is_told_until_it_is_accepted_and_never_again(life: Life) -> None:
    """Over restarts of the agent, wherever they come: each word has its number and the time when it was seen."""
    signalled = Sign(gpu_uuid=life.gpus.uuids[1], signal=GpuSignal.XID, code=48, source="injected")
    assert await life.shows(gpu=1, signal=GpuSignal.XID, code=48) == [signalled]
    seen = life.health.tellings
    life.clock.advance(9.0)

    again = Life(life.folder, life.clock)
    assert await again.shows(3) == [signalled]
    assert again.health.tellings == seen
    again.tell()

    assert await Life(life.folder, life.clock).shows(3) == []


async def test_with_too_much_to_tell_nothing_is_looked_at_and_nothing_is_lost(life: Life) -> None:
    """What happens meanwhile is seen later."""
    for number in range(TELLINGS_MAX + 5):
        await life.shows(gpu=0, signal=GpuSignal.ECC_UNCORRECTABLE)
        assert len(life.words) == min(number + 1, TELLINGS_MAX)
    life.tell()
    words = await life.shows(2)
    assert [word.code for word in words if isinstance(word, Sign)] == [5]


async def test_a_new_life_of_the_node_is_told_what_lasts(life: Life) -> None:
    """Nobody knows of it what the life before was told. What was seen and not told is not told twice."""
    hot, lost = GpuSignal.RECOVERY_ACTION, GpuSignal.XID
    await life.shows(gpu=0, signal=hot)
    life.tell()
    await life.shows(gpu=1, signal=hot)
    await life.shows(gpu=2, signal=lost, code=13)

    life.health.joined()

    words = [(word.gpu_uuid, word.signal) for word in await life.shows() if isinstance(word, Sign)]
    first, second, third, _ = life.gpus.uuids
    assert words == [(third, lost), (first, hot), (second, hot)]


async def test_another_boot_begins_with_nothing(life: Life) -> None:
    """It is a remedy itself; what lasts beyond it is seen again, and told."""
    await life.shows(gpu=0, signal=GpuSignal.XID, code=13)
    after = Life(life.folder, boot_id="b2")
    assert after.words == []
    assert (await after.shows())[0].gpu_uuid == life.gpus.uuids[0]


async def test_what_does_not_answer_is_known(life: Life) -> None:
    """From when it is told on, also after a restart, until it answers."""
    await life.shows(2, gpu=3, signal=GpuSignal.XID, code=79)
    assert Life(life.folder).health.missing == life.health.missing == {life.gpus.uuids[3]}
    await life.shows(clear=True)
    assert life.health.missing == frozenset()


async def test_a_reset_that_helps_is_told_and_not_done_twice(life: Life) -> None:
    """Until the GPU shows something again, or it is no longer wanted."""
    gpu = life.gpus.uuids[0]
    await life.shows(gpu=0, signal=GpuSignal.RECOVERY_ACTION)
    await life.shows(3, gpu=0, signal=GpuSignal.HOT)
    life.tell()

    life.health.reset(gpu)
    assert gpu in life.health.unready
    await life.until(lambda: not life.health.resetting)

    assert life.words == [Recovered(gpu, Recovery.RESET)]
    assert life.health.tried == life.health.unready == {gpu}
    assert Life(life.folder, life.clock).health.unready == {gpu}
    await life.shows(3)
    hot = Sign(gpu_uuid=gpu, signal=GpuSignal.HOT, code=95, source="injected")
    assert life.words == [Recovered(gpu, Recovery.RESET), hot], "a reset does not cool it"
    assert life.health.unready == frozenset(), "it may be wanted again, for that"
    life.health.forget_reset(gpu)
    assert life.health.tried == frozenset()


@pytest.mark.parametrize(
    ("signal", "code", "said"),
    [
        (GpuSignal.MISSING, 0, "the GPU is not on its bus"),
        (GpuSignal.REMAP_FAILED, 0, "remapping a row of its memory has failed"),
        (GpuSignal.RECOVERY_ACTION, 2, "the driver still asks for recovery action 2"),
    ],
)
async def test_a_reset_that_does_not_help_is_told_and_tried_again_later(
    life: Life, signal: GpuSignal, code: int, said: str
) -> None:
    """Whether the driver refused it, or the GPU is not as it should be afterwards. Not for ever."""
    gpu = life.gpus.uuids[0]
    await life.shows(2, gpu=0, signal=signal, code=code)
    life.tell()
    for failures in range(1, TRIES_MAX + 1):
        life.health.reset(gpu)
        await life.until(lambda: not life.health.resetting)
        assert life.words == [ResetFailed(gpu, said)]
        life.tell()
        assert gpu in life.health.unready
        life.clock.advance(AGAIN_FIRST_S * 2 ** (failures - 1))
        assert (gpu in life.health.unready) is (failures == TRIES_MAX)
    life.health.forget_reset(gpu)
    assert life.health.unready == frozenset()


async def test_gpus_are_reset_one_after_the_other_and_looks_go_on_between(life: Life) -> None:
    """All that were asked for; what the others show meanwhile is seen."""
    for gpu in life.gpus.uuids[:3]:
        life.health.reset(gpu)
    put(life.folder, Injection(gpu=3, signal=GpuSignal.REMAP_FAILED), 1.0)
    await life.until(lambda: not life.health.resetting)
    assert {word.gpu_uuid for word in life.words if isinstance(word, Recovered)} == set(life.gpus.uuids[:3])
    assert sum(isinstance(word, Sign) for word in life.words) == 1


async def test_a_full_disk_stops_no_look(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known is known, until the agent ends; and when a look fails, the next one is tried."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    put(life.folder, Injection(gpu=0, signal=GpuSignal.REMAP_FAILED), 1.0)
    await life.health.look()
    life.health.accepted(1)
    monkeypatch.setattr("agent.health.write", refuse)
    await life.shows(gpu=1, signal=GpuSignal.REMAP_FAILED)
    assert len(life.words) == 1
    monkeypatch.setattr(SimulatedGpus, "look", refuse)
    await life.running(asyncio.sleep(0.05))
    monkeypatch.undo()
    await life.until(lambda: len(life.words) == 1)


async def test_a_gpu_that_does_not_answer_is_told_again_to_whoever_gives_it_away(life: Life) -> None:
    """Once at a time: an operator said that it is sound, and it is not."""
    missing, sound = life.gpus.uuids[1], life.gpus.uuids[0]
    await life.shows(2, gpu=1, signal=GpuSignal.MISSING)
    life.tell()
    for _ in range(2):
        life.health.tell_missing([sound, missing])
        assert life.words == [Sign(gpu_uuid=missing, signal=GpuSignal.MISSING)]
    life.tell()
    assert await life.shows(3) == []
