"""A progress bar for what takes longer than two seconds: on stderr, and only on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from services.main.local import CLOCK

AFTER_S: Final = 2.0
EVERY_S: Final = 0.2


class Watch(Protocol):
    """Is told how far the work is: so much, of so much."""

    def __call__(self, done: int, total: int, /) -> None:
        """The bar shows it, once there is one."""


@contextmanager
def progress(what: str) -> Iterator[Watch]:
    """What to tell how far the work is. The bar is gone when the block is left."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    began_s, shown_s, task = CLOCK.monotonic(), 0.0, None

    def watch(done: int, total: int) -> None:
        nonlocal shown_s, task
        now_s = CLOCK.monotonic()
        if now_s - began_s < AFTER_S or now_s - shown_s < EVERY_S:
            return
        shown_s = now_s
        if task is None:
            bar.start()
            task = bar.add_task(what, total=total)
        bar.update(task, completed=done, total=total)

    try:
        yield watch
    finally:
        bar.stop()
