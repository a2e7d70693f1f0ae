"""An event loop on a virtual clock: it never waits, runs what is ready in an order drawn from a seed, and knows whose it is.

Every callback belongs to a process of the simulated world, or to the world itself. One that is paused runs nothing until
it goes on; one that was killed runs nothing any more, no `finally` either: that is what `kill -9` means.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from enum import StrEnum
from random import Random
from typing import Any, Final

STEPS_MAX: Final = 30_000_000  # of one world: more is a loop that never waits
CANCELLED_MIN: Final = 50  # timers that are kept though they were cancelled
DRAINED_MAX: Final = 10_000  # steps in which everything ends at last


class State(StrEnum):
    """Of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """A process of the world: its tasks, and what waits while they may not run."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.state = State.RUNNING
        self.since_s = loop.time()  # since when it has run without a pause
        self.kept: list[asyncio.Handle] = []  # callbacks that came while it did not run
        self.fuse = 0  # when it is more than 0: after so many callbacks more, `burnt` is called
        self.burnt: Callable[[], None] = lambda: None
        self._loop = loop
        self._context = copy_context()
        self._context.run(OWNER.set, self)

    @property
    def running(self) -> bool:
        """Whether it lives and is not paused."""
        return self.state is State.RUNNING

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this process."""
        return self._loop.create_task(work, context=self._context.run(copy_context))

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Its first task. A process that ends of itself has a bug."""
        self.spawn(work).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and self.state is not State.DEAD:
            error = task.exception()
            self._loop.failed(f"{self.name} ended", error)

    def post(self, call: Callable[..., None], *args: Any) -> None:
        """The process calls it: soon, or when it goes on."""
        self._loop.call_soon(call, *args, context=self._context)

    def wears(self) -> bool:
        """Whether it may run one callback more; the fuse is shorter by one."""
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                self.burnt()
        return self.state is State.RUNNING

    def pause(self) -> None:
        """Nothing of it runs until `resume`."""
        if self.state is State.RUNNING:
            self.state = State.PAUSED

    def resume(self) -> None:
        """It goes on with all that it missed, late."""
        if self.state is State.PAUSED:
            self.state = State.RUNNING
            self.since_s = self._loop.time()
            self._loop.put_back(self)

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self.state = State.DEAD


OWNER: Final[ContextVar[Process | None]] = ContextVar("owner", default=None)  # whose a callback is; None: the world's


class VirtualLoop(asyncio.BaseEventLoop):
    """See above. `time` is seconds since the world began."""

    # Of the base class, which has no types for them.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now_s = 0.0
        self.steps = 0
        self.processes: list[Process] = []
        self.failed: Callable[[str, BaseException | None], None] = lambda _what, _error: None  # of what nobody catches
        self.set_exception_handler(self._caught)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def process(self, name: str) -> Process:
        """A new process of the world."""
        self.processes.append(Process(self, name))
        return self.processes[-1]

    def put_back(self, process: Process) -> None:
        """What waited for a process is ready again."""
        self._ready.extend(process.kept)
        process.kept = []

    def drain(self) -> None:
        """Every task of every process has ended, in good order, so that nothing is left behind a finished world."""
        for process in self.processes:
            process.state, process.fuse = State.RUNNING, 0
            self.put_back(process)
        for _ in range(DRAINED_MAX):
            left = asyncio.all_tasks(self)
            if not left:
                return
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.sleep(0))

    def _run_once(self) -> None:
        """What is ready runs, in an order that is drawn; when nothing is, it is the time of the next timer."""
        self._take_due()
        batch = list(self._ready)
        self._ready.clear()
        if len(batch) > 1:
            self._random.shuffle(batch)
        self.steps += len(batch)
        if self.steps > STEPS_MAX:
            raise RuntimeError(f"{STEPS_MAX} steps, and no end")
        for handle in batch:
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)
            if owner is None or owner.wears():
                handle._run()
            else:
                owner.kept.append(handle)

    def _take_due(self) -> None:
        timers = self._scheduled
        if self._timer_cancelled_count > len(timers) // 2 > CANCELLED_MIN:
            for timer in timers:
                timer._scheduled = not timer._cancelled
            timers = self._scheduled = [timer for timer in timers if not timer._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0]._cancelled:
            self._drop_first()
        if not self._ready and not self._stopping:
            if not timers:
                raise RuntimeError("nothing will ever happen again: every task waits for another")
            self._now_s = max(self._now_s, timers[0].when())
        while timers and timers[0].when() <= self._now_s:
            timer = self._drop_first()
            if not timer._cancelled:
                self._ready.append(timer)

    def _drop_first(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._scheduled)
        timer._scheduled = False
        if timer._cancelled:
            self._timer_cancelled_count -= 1
        return timer

    def _write_to_self(self) -> None:
        """Wakes the loop from another thread: there is none."""

    def _caught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failed(str(context.get("message")), context.get("exception"))
