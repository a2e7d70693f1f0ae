"""The figures of a simulation: waits, times to completion, how much of the cluster was used."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from services.simulate.engine import Sample
from services.simulate.work import US, Life

PERCENTS: Final = (50, 90, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the sorted `values` lie, between two neighbours in proportion.

    Source: Hyndman and Fan, Sample Quantiles in Statistical Packages (1996), definition 7. 0 for no values.
    """
    if not values:
        return 0.0
    place = (len(values) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles as `<name>_mean_s`, `<name>_p50_s`, …; to a millisecond."""
    ordered = sorted(values)
    mean = sum(ordered) / len(ordered) if ordered else 0.0
    figures = {f"{name}_mean_s": mean} | {f"{name}_p{p}_s": percentile(ordered, p) for p in PERCENTS}
    return {key: round(value, 3) for key, value in figures.items()}


def used_gpu_us(samples: Sequence[Sample]) -> int:
    """GPU-microseconds that runs held."""
    return sum(one.used * (after.at_us - one.at_us) for one, after in pairwise(samples))


def figures(lives: Sequence[Life], samples: Sequence[Sample], capacity: int) -> dict[str, Any]:
    """The figures that all simulations of jobs in time have.

    Waits go from submission to the first start, completion times to the end; makespan from the first submission to the
    last end; utilisation is GPU-seconds held by runs over capacity x makespan.
    """
    ends = [life.ended_us for life in lives if life.ended_us is not None]
    first_us = min((life.work.arrives_us for life in lives), default=0)
    span_us = max(ends, default=first_us) - first_us
    return {
        "jobs": len(lives),
        "unfinished": len(lives) - len(ends),
        **spread("wait", [life.wait_s for life in lives if life.wait_s is not None]),
        **spread("completion", [life.completion_s for life in lives if life.completion_s is not None]),
        "makespan_s": round(span_us / US, 3),
        "utilisation": round(used_gpu_us(samples) / (capacity * span_us), 4) if span_us and capacity else 0.0,
        "promises_made": sum(life.promised_us is not None for life in lives),
        "promises_kept": sum(life.promise_kept for life in lives),
    }


SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # GPUs: a class goes up to the next


def size_class(gpus: int) -> str:
    """The class of sizes that a job belongs to: `1`, `2`, `3-4`, `5-8`, …, `1025+`."""
    upper = next((size for size in SIZES if gpus <= size), None)
    if upper is None:
        return f"{SIZES[-1] + 1}+"
    lower = upper // 2 + 1
    return str(upper) if lower >= upper else f"{lower}-{upper}"


def by_size(lives: Sequence[Life]) -> dict[str, list[float]]:
    """The waits of the jobs of each class of sizes, sorted, from the smallest class to the largest; in seconds."""
    classes: dict[str, list[float]] = {}
    for life in sorted(lives, key=lambda life: life.work.spec.gpus):
        if life.wait_s is not None:
            classes.setdefault(size_class(life.work.spec.gpus), []).append(life.wait_s)
    return {name: sorted(waits) for name, waits in classes.items()}
