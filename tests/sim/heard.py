"""Which beats of nodes came to which plane: nobody is given up for a silence that was none."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from events.base import Event, NodeId
from events.desired import Heartbeat
from events.fleet import NodeLost, NodeSuspected

KEPT: Final = 200  # beats of a node
UNREAD_S: Final = 3.0  # a beat that came so lately may not have been looked at
BEGUN_S: Final = 1.0  # how exact the begin of a silence is


class Heard:
    """The last beats, by plane and node: the life that beat, and when that came to the plane, asleep or not."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._beats: dict[tuple[str, NodeId], deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=KEPT))

    def beat(self, plane: str, pulse: Heartbeat) -> None:
        """It has come to a plane that lives."""
        self._beats[plane, pulse.node_id].append((pulse.epoch, self._now()))

    def against(self, plane: str, decision: Sequence[Event]) -> Iterator[str]:
        """What a plane that decides so now must not say."""
        now = self._now()
        for event in decision:
            if isinstance(event, NodeLost | NodeSuspected):
                least, most = now - event.silent_s + BEGUN_S, now - UNREAD_S
                for epoch, at in self._beats[plane, event.node_id]:
                    if epoch == event.node_epoch and least < at < most:
                        yield f"{plane}: {event.node_id} was silent for {event.silent_s} s, and beat {now - at:.1f} s ago"
