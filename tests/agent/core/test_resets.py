"""When a GPU that is to be reset may be."""

import pytest

from agent.core.resets import TRIES_MAX, Trial, unready
from events.base import GpuUuid

GPU = GpuUuid("GPU-0")


@pytest.mark.parametrize(
    ("trial", "ready_s"),
    [
        (Trial(), 0.0),
        (Trial(failures=1, failed_s=100.0), 130.0),
        (Trial(failures=2, failed_s=100.0), 160.0),
        (Trial(failures=4, failed_s=100.0), 340.0),
    ],
)
def test_a_reset_that_failed_is_tried_again_later_and_later(trial: Trial, ready_s: float) -> None:
    """The first try is at once."""
    assert GPU not in unready({GPU: trial}, ready_s)
    assert ready_s == 0.0 or GPU in unready({GPU: trial}, ready_s - 0.1)


@pytest.mark.parametrize("trial", [Trial(failures=TRIES_MAX), Trial(done=True)])
def test_what_was_done_or_failed_too_often_is_not_tried_again(trial: Trial) -> None:
    """Not before it was no longer wanted, or the GPU shows something new."""
    assert unready({GPU: trial}, 1e9) == {GPU}
