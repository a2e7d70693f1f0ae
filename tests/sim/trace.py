"""What happens in a world, line by line: the last of it to read, all of it as a hash that a replay must reproduce."""

import hashlib
import sys
from collections import Counter, deque
from typing import Any, Final

import structlog

from tests.sim.loop import OWNER, VirtualLoop

KEPT: Final = 40
NOISE: Final = frozenset({"event"})


class Broke(Exception):
    """A law does not hold in this world."""

    def __init__(self, law: str, message: str) -> None:
        super().__init__(f"{law}: {message}")
        self.law = law
        self.message = message


class Trace:
    """Lines with virtual times."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._watch = False
        self._hash = hashlib.sha256()
        self.last: deque[str] = deque(maxlen=KEPT)
        self.counts: Counter[str] = Counter()
        self.broken: Broke | None = None

    def keep(self, kept: int, *, watch: bool) -> None:
        """So many lines are kept; `watch`: each goes to stderr at once."""
        self.last = deque(self.last, maxlen=kept)
        self._watch = watch

    @property
    def now_s(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    @property
    def digest(self) -> str:
        """Of all lines so far."""
        return self._hash.hexdigest()[:16]

    def note(self, who: str, what: str, **fields: Any) -> None:
        """One more line."""
        self.counts[what] += 1
        said = " ".join(f"{name}={value}" for name, value in fields.items())
        line = f"{self._loop.time():10.3f} {who:<12} {what} {said}".rstrip()
        self._hash.update(line.encode())
        self.last.append(line)
        if self._watch:
            sys.stderr.write(f"{line}\n")

    def broke(self, law: str, message: str) -> None:
        """A law is broken: the world stops at the next look. The first breach counts."""
        if self.broken is None:
            self.broken = Broke(law, message)
            self.note("checker", "BROKEN", law=law, message=message)

    def configure_logging(self) -> None:
        """What the code under test logs becomes lines of the trace."""

        def take(_logger: object, method: str, event: dict[str, Any]) -> Any:
            owner = OWNER.get()
            fields = {name: value for name, value in event.items() if name not in NOISE}
            self.note(owner.name if owner else "world", f"{event['event']}{'!' if method == 'error' else ''}", **fields)
            raise structlog.DropEvent

        structlog.configure(processors=[take], cache_logger_on_first_use=False)
