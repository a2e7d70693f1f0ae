"""For how long a node without contact goes on: by what its last heartbeat promised that surely arrived."""

from typing import Final

import msgspec

LEAD_SHARE: Final = 1 / 3  # of what was promised: how much earlier its ranks have ended
LEAD_MOST_S: Final = 10.0  # and no more than this: a lost heartbeat, a slow tick, clocks that run unevenly
BEATS: Final = 9  # in the least silence after which a node is given up: a few may be missed before it is even suspect


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """The last heartbeat that surely arrived. Times are seconds of the machine's monotonic clock."""

    sent_s: float
    patience_s: float  # that it promised
    told_s: float = -1.0  # when what the promise was made by was first read; less than 0: nothing was


def ended_by_s(patience_s: float) -> float:
    """The silence after which everything has ended that may be started elsewhere, where the node is given up after this."""
    return patience_s - min(patience_s * LEAD_SHARE, LEAD_MOST_S)


def beats_every_s(asked_s: float, least_s: float) -> float:
    """Seconds between heartbeats: as asked, or as often as the least patience needs."""
    return min(asked_s, least_s / BEATS)
