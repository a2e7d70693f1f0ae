"""Lists of gangs on empty nodes: the figures of the worked example, and lists that are none."""

from pathlib import Path

import pytest

from events.policy import PlacePolicy
from services.simulate.fault import BadFile
from services.simulate.fill import fill, read_sizes
from services.simulate.replay import Pool

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "worked-example.txt"
POOL = Pool(1_250, 8)


@pytest.mark.parametrize(
    ("policy", "placed", "free_gpus", "free_whole_nodes"),
    [
        (PlacePolicy.BEST_FIT, 862, 1_012, 126),
        (PlacePolicy.FIRST_FIT, 862, 1_012, 126),
        (PlacePolicy.SPREAD, 807, 2_492, 0),
    ],
)
def test_the_worked_example_gives_its_figures(
    policy: PlacePolicy, placed: int, free_gpus: int, free_whole_nodes: int
) -> None:
    """862 jobs of 1 to 64 GPUs on 10,000: whole nodes stay whole, but for a policy that spreads."""
    assert fill(read_sizes(EXAMPLE.read_text().splitlines()), POOL, policy) == {
        "jobs": 862,
        "gpus": 8_988,
        "placed": placed,
        "rejected": 862 - placed,
        "free_gpus": free_gpus,
        "free_whole_nodes": free_whole_nodes,
    }


def test_what_does_not_fit_is_skipped() -> None:
    """Smaller ones behind it still find room."""
    filled = fill([12, 17, 4], Pool(2, 8), PlacePolicy.BEST_FIT)
    assert (filled["placed"], filled["rejected"], filled["free_gpus"]) == (2, 1, 0)


def test_a_list_may_have_empty_lines_and_remarks() -> None:
    """Only the numbers count."""
    assert read_sizes(["# sizes", "8", "", " 16 "]) == [8, 16]


@pytest.mark.parametrize("line", ["eight", "0", "-8", "1.5", "²", "9999999"])
def test_what_is_no_gpu_count_is_refused_with_its_line(line: str) -> None:
    """A typo must not count as a job less."""
    with pytest.raises(BadFile, match="no GPU count") as bad:
        read_sizes(["8", line])
    assert bad.value.line == 2
