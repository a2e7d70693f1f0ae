"""What an agent says to its servers and hears from them: the port behind which they are NATS, or simulated."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from events.ask import Answer, Report
from events.desired import DesiredShare, Heartbeat


class Link(Protocol):
    """A connection to the servers. It may fall silent and come back, until it is lost for good."""

    @property
    def reconnects(self) -> int:
        """How often it came back: what was sent meanwhile may have been missed."""
        ...

    async def lost(self) -> None:
        """Returns once it is lost for good: then another is needed."""
        ...

    async def alive(self) -> bool:
        """Whether the servers answer, now."""
        ...

    async def beat(self, pulse: Heartbeat) -> None:
        """The heartbeat was sent, or could not be: both are fine."""
        ...

    async def desired(self) -> bytes | None:
        """What is stored as desired of the node, perhaps not the newest; nothing where nothing is; None: no answer."""
        ...

    async def tell(self, report: Report) -> Answer | None:
        """The gate's answer. None: it may have taken the report or not."""
        ...

    async def ship(self, share: DesiredShare, rank: int, offset: int, data: bytes) -> bool:
        """Whether a piece of a rank's output is stored. False: it may be all the same."""
        ...


Hear = Callable[[bytes], None]  # a value that was sent as desired of the node, stored or not
Dial = Callable[[Hear], AbstractAsyncContextManager[Link]]  # a new link that hears; raises `Fault` where none answers
