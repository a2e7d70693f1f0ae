"""The health of a node's GPUs as its agent follows it: looks, words that are kept until they are accepted, and resets."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from agent.core.resets import Trial, unready
from agent.core.signs import (
    Known,
    Look,
    Recovered,
    ResetFailed,
    Sign,
    Telling,
    Word,
    after_reset,
    compare,
    in_new_life,
    trouble,
)
from agent.files import decoded
from agent.gpus import Gpus
from events.base import GpuUuid
from events.gpu import GpuSignal, Recovery
from runtime.clock import Clock
from runtime.files import write
from runtime.logging import get_logger

logger = get_logger(__name__)

TELLINGS_MAX: Final = 64  # that wait: with more, nothing is looked at, and what is seen is seen later
MOMENTS: Final = frozenset({GpuSignal.XID, GpuSignal.ECC_UNCORRECTABLE})  # all other signs last


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the disk holds, of one boot: a new one begins with nothing, since it is a remedy itself."""

    boot_id: str
    mark: int = 0  # of the last look
    known: dict[GpuUuid, Known] = {}
    tellings: tuple[Telling, ...] = ()
    numbered: int = 0  # words, ever
    trials: dict[GpuUuid, Trial] = {}


class GpuHealth:
    """What is known of the GPUs, and what is to be told of them. An agent that restarts goes on with it."""

    def __init__(self, folder: Path, gpus: Gpus, boot_id: str, clock: Clock) -> None:
        self._path = folder / "gpus.json"
        self._gpus = gpus
        self._clock = clock
        kept = decoded(self._path, Kept)
        if kept is not None and kept.boot_id != boot_id and kept.tellings:
            logger.warning("words_of_another_boot_dropped", words=len(kept.tellings))
        self._kept = kept if kept is not None and kept.boot_id == boot_id else Kept(boot_id=boot_id)
        self._asked = asyncio.Event()
        self._resetting: dict[GpuUuid, None] = {}  # in the order in which it was asked for

    @property
    def tellings(self) -> tuple[Telling, ...]:
        """What is to be told, in order."""
        return self._kept.tellings

    @property
    def missing(self) -> frozenset[GpuUuid]:
        """The GPUs that do not answer."""
        return frozenset(gpu for gpu, known in self._kept.known.items() if known.missing)

    @property
    def resetting(self) -> frozenset[GpuUuid]:
        """Those that are being reset, or will be next."""
        return frozenset(self._resetting)

    @property
    def tried(self) -> frozenset[GpuUuid]:
        """Those that were reset, or could not be, since that is wanted."""
        return frozenset(self._kept.trials)

    @property
    def unready(self) -> frozenset[GpuUuid]:
        """Those that are not to be reset now."""
        return unready(self._kept.trials, self._clock.monotonic()) | self.resetting

    async def run(self, every_s: float, wake: Callable[[], None]) -> None:
        """Looks, and resets what that is asked for, until cancelled; `wake` is called when there is something to tell."""
        while True:
            for step in [self.look, *(self._reset_next for _ in self._resetting)]:
                before = self._kept
                try:
                    await step()
                except OSError as error:  # a full disk, no more processes: the next look may see
                    logger.error("gpus_unseen", error=str(error))
                if self._kept is not before:
                    wake()
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._asked.wait()
            self._asked.clear()

    async def look(self) -> None:
        """One look was taken, and what is new in it is to be told."""
        if len(self._kept.tellings) < TELLINGS_MAX:
            self._take(await self._gpus.look(self._kept.mark))

    def accepted(self, number: int) -> None:
        """This word is not told again."""
        tellings = tuple(telling for telling in self._kept.tellings if telling.number != number)
        self._keep(replace(self._kept, tellings=tellings))

    def joined(self) -> None:
        """A new life of the node begins. Nobody knows of it what lasts, so that is told again, once it is seen again."""
        tellings = tuple(
            one for one in self._kept.tellings if not isinstance(one.word, Sign) or one.word.signal in MOMENTS
        )
        known = {gpu: in_new_life(one) for gpu, one in self._kept.known.items()}
        self._keep(replace(self._kept, tellings=tellings, known=known))

    def tell_missing(self, gpu_uuids: Sequence[GpuUuid]) -> None:
        """Of these, those that do not answer are told again: somebody who gives them away believes them sound."""
        words = [Sign(gpu_uuid=gpu, signal=GpuSignal.MISSING) for gpu in gpu_uuids if gpu in self.missing]
        waiting = [telling.word for telling in self._kept.tellings]
        self._keep(self._telling(self._kept, [word for word in words if word not in waiting]))

    def reset(self, gpu_uuid: GpuUuid) -> None:
        """The GPU is reset as soon as it is its turn."""
        self._resetting[gpu_uuid] = None
        self._asked.set()

    def forget_reset(self, gpu_uuid: GpuUuid) -> None:
        """It is no longer wanted: the next time is a first one."""
        trials = {gpu: trial for gpu, trial in self._kept.trials.items() if gpu != gpu_uuid}
        self._keep(replace(self._kept, trials=trials))

    async def _reset_next(self) -> None:
        gpu_uuid = next(iter(self._resetting))
        try:
            problem = await self._gpus.reset(gpu_uuid)
            look = await self._gpus.look(self._kept.mark)
            self._judge(gpu_uuid, look, problem or trouble(look.readings[gpu_uuid]))
        finally:
            del self._resetting[gpu_uuid]

    def _judge(self, gpu_uuid: GpuUuid, look: Look, problem: str) -> None:
        """What became of a reset is to be told, and what the GPU shows after it."""
        kept, now_s = self._kept, self._clock.monotonic()
        trial = kept.trials.get(gpu_uuid, Trial())
        if problem:
            logger.warning("gpu_reset_failed", gpu_uuid=gpu_uuid, error=problem)
            trial = Trial(trial.failures + 1, now_s)
            kept = self._telling(kept, [ResetFailed(gpu_uuid, problem)])
        else:
            logger.info("gpu_reset", gpu_uuid=gpu_uuid)
            trial = Trial(done=True)
            known = kept.known | {gpu_uuid: after_reset(look.readings[gpu_uuid])}
            kept = self._telling(replace(kept, known=known), [Recovered(gpu_uuid, Recovery.RESET)])
        self._take(look, replace(kept, trials=kept.trials | {gpu_uuid: trial}))

    def _take(self, look: Look, kept: Kept | None = None) -> None:
        kept = kept or self._kept
        known, words = compare(kept.known, look, self._clock.monotonic())
        showing = {word.gpu_uuid for word in words if isinstance(word, Sign) and not word.ended}
        trials = {gpu: trial for gpu, trial in kept.trials.items() if not (trial.done and gpu in showing)}
        for word in words:
            logger.info("gpu_changed", **msgspec.to_builtins(word))
        self._keep(self._telling(replace(kept, mark=look.mark, known=known, trials=trials), words))

    def _telling(self, kept: Kept, words: Sequence[Word]) -> Kept:
        """`kept` with more to tell."""
        at = self._clock.now()
        new = tuple(Telling(number, at, word) for number, word in enumerate(words, kept.numbered + 1))
        return replace(kept, tellings=(*kept.tellings, *new), numbered=kept.numbered + len(new))

    def _keep(self, kept: Kept) -> None:
        """It holds from now on; after a restart too, if that can be written."""
        if kept == self._kept:
            return
        self._kept = kept
        try:
            write(self._path, msgspec.json.encode(kept))
        except OSError as error:
            logger.error("note_not_kept", note="gpus", error=str(error))
