"""Figures of simulations, by hand."""

import pytest

from events.base import JobId, TeamId
from events.job import JobSpec
from services.simulate.engine import Sample
from services.simulate.measure import by_size, figures, percentile, size_class, spread, used_gpu_us
from services.simulate.work import US, Life, Work


def life(gpus: int, arrives_s: int, started_s: int | None = None, ended_s: int | None = None) -> Life:
    """The life of a job."""
    spec = JobSpec(name="j", command=("true",), gpus=gpus)
    work = Work(JobId("j"), TeamId("t"), spec, arrives_s * US, US)
    times = [None if s is None else s * US for s in (started_s, ended_s)]
    return Life(work, started_us=times[0], started_last_us=times[0], ended_us=times[1])


@pytest.mark.parametrize(
    ("values", "percent", "value"),
    [([], 50, 0), ([3], 99, 3), ([1, 2], 50, 1.5), ([0, 10], 90, 9), (range(101), 99, 99), ([1, 2, 3], 100, 3)],
)
def test_a_percentile_lies_between_its_neighbours(values: list[float], percent: float, value: float) -> None:
    """As most tools have it."""
    assert percentile(values, percent) == pytest.approx(value)


def test_a_spread_is_of_all_values() -> None:
    """In any order."""
    found = spread("wait", [3.0, 1.0])
    assert found == {"wait_mean_s": 2.0, "wait_p50_s": 2.0, "wait_p90_s": 2.8, "wait_p99_s": 2.98}


def test_figures_are_of_what_ran() -> None:
    """Two jobs on four GPUs for ten seconds, and one that never starts."""
    samples = [Sample(0, 2, 0, 0), Sample(5 * US, 4, 1, 8), Sample(10 * US, 0, 1, 8)]
    found = figures([life(2, 0, 0, 10), life(2, 1, 5, 10), life(8, 2)], samples, 4)
    assert used_gpu_us(samples) == 30 * US
    assert (found["jobs"], found["unfinished"], found["makespan_s"], found["utilisation"]) == (3, 1, 10, 0.75)
    assert (found["wait_mean_s"], found["completion_mean_s"]) == (2, 9.5)


def test_nothing_at_all_has_figures_too() -> None:
    """A pool for which every job is too large."""
    assert figures([], [], 0)["utilisation"] == 0


def test_a_promise_is_kept_by_a_start_no_later() -> None:
    """The first one counts, however often it moved."""
    kept, late = life(1, 0, 5, 6), life(1, 0, 7, 8)
    kept.promised_us = late.promised_us = 6 * US
    found = figures([kept, late, life(1, 0, 1, 2)], [], 1)
    assert (found["promises_made"], found["promises_kept"]) == (2, 1)


def test_sizes_have_classes() -> None:
    """Each a doubling."""
    sizes = (1, 2, 3, 4, 5, 8, 9, 1_024, 1_025)
    assert [size_class(s) for s in sizes] == ["1", "2", "3-4", "3-4", "5-8", "5-8", "9-16", "513-1024", "1025+"]
    assert list(by_size([life(16, 0, 4), life(1, 0, 2), life(1, 0, 1), life(2, 0)]).items()) == [
        ("1", [1, 2]),
        ("9-16", [4]),
    ]
