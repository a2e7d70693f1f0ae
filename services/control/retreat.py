"""For how long who was shut out of the lead leaves it to others, whatever its lease says."""

from typing import Final

LEAST_S: Final = 0.25  # after the first time; then each time twice as long
MOST_S: Final = 2.0  # no lease runs out sooner: whoever gets one because nobody leads has waited so long already
CALM_S: Final = 10.0  # who was not shut out for so long since it might try again is shut out for the first time


class Retreat:
    """Two that both believe that they hold the lease would else shut each other out as fast as they read the log.

    Times are seconds of one monotonic clock.
    """

    def __init__(self) -> None:
        self._wait_s = LEAST_S
        self._until_s = float("-inf")

    def shut_out(self, now: float) -> None:
        """We led, and another says that it leads."""
        self._wait_s = min(self._wait_s * 2, MOST_S) if now < self._until_s + CALM_S else LEAST_S
        self._until_s = now + self._wait_s

    def over(self, now: float) -> bool:
        """Whether we may try to lead again."""
        return now >= self._until_s
