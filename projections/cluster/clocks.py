"""How far a node's clock is from the control plane's: shown, and nothing is decided by it."""

from typing import Final

CHANGED_S: Final = 1.0  # less is within what a busy machine mistakes


def changed(said_s: float, measured_s: float) -> bool:
    """Whether what was measured is another thing than what was said last: by a second, and by half of the larger."""
    apart_s = abs(measured_s - said_s)
    return apart_s >= CHANGED_S and apart_s * 2 >= max(abs(measured_s), abs(said_s))
