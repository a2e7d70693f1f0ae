"""Traces as they are read: what counts, what is made up for, and what is refused."""

import pytest

from events.job import Priority
from services.simulate.fault import BadFile
from services.simulate.trace import read_trace
from services.simulate.work import US

HEADER = "job_id,submit_s,gpus,nodes,runtime_s,team,gpu_type,priority"


def test_jobs_come_in_order_of_submission_then_of_the_file() -> None:
    """Whatever order the file has."""
    works = read_trace([HEADER, "b,5,1,,10,,,", "c,0,2,,10,,,", "a,5,4,,10,,,"])
    assert [work.job_id for work in works] == ["c", "b", "a"]
    assert [work.arrives_us for work in works] == [0, 5 * US, 5 * US]


def test_without_an_estimate_the_true_runtime_is_declared() -> None:
    """In whole seconds, rounded up; a job of no length declares one, since 0 is no declaration."""
    works = read_trace([f"{HEADER},estimate_s", "a,0,1,,10,,,,", "b,0,1,,10.5,,,,", "c,0,1,,0,,,,", "d,0,1,,10,,,,60"])
    assert [work.spec.max_runtime_s for work in works] == [10, 11, 1, 60]
    assert [work.runtime_us for work in works] == [10 * US, 10_500_000, 0, 10 * US]


def test_priorities_are_names_or_numbers() -> None:
    """Numbers are mapped on the classes in their order."""
    lines = [HEADER, "a,0,1,,1,,,urgent", "b,0,1,,1,,,", "c,0,1,,1,,,100", "d,0,1,,1,,,50", "e,0,1,,1,,,200"]
    assert [work.spec.priority for work in read_trace(lines)] == [
        Priority.URGENT,
        Priority.NORMAL,
        Priority.NORMAL,
        Priority.LOW,
        Priority.HIGH,
    ]


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        ([], 0, "empty"),
        ([HEADER], 0, "no jobs"),
        (["job_id,submit_s,gpus"], 1, "runtime_s is missing"),
        (["job_id,submit_s,gpu,runtime_s"], 1, "no column 'gpu'"),
        (["job_id,gpus,submit_s,gpus,runtime_s"], 1, "there twice"),
        ([HEADER, "a,0,1,,1,,,", "b,0,1"], 3, "number of cells"),
        ([HEADER, "a,0,1,,1,,,,9"], 2, "number of cells"),
        ([HEADER, "a,soon,1,,1,,,"], 2, "submit_s is 'soon'"),
        ([HEADER, "a,nan,1,,1,,,"], 2, "submit_s is nan"),
        ([HEADER, "a,-1,1,,1,,,"], 2, "submit_s is -1"),
        ([HEADER, "a,0,1.5,,1,,,"], 2, "gpus is '1.5'"),
        ([HEADER, "a,0,0,,1,,,"], 2, "gpus is 0"),
        ([HEADER, ",0,1,,1,,,"], 2, "job_id is empty"),
        ([HEADER, "a,0,1,,1,,,", "a,1,1,,1,,,"], 3, "stands above"),
        ([HEADER, "a,0,1,,1,,,soonest"], 2, "priority is 'soonest'"),
        ([HEADER, *(f"j{n},0,1,,1,,,{n}" for n in range(5))], 0, "5 priorities"),
        ([HEADER, 'a,"0,1'], 2, "not CSV"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(lines: list[str], line: int, said: str) -> None:
    """Figures of half a trace would look like figures."""
    with pytest.raises(BadFile, match=said) as bad:
        read_trace(lines)
    assert bad.value.line == line


def test_a_misspelt_column_is_guessed() -> None:
    """It says what was meant."""
    with pytest.raises(BadFile) as bad:
        read_trace(["job_id,submit_s,gpu,runtime_s"])
    assert bad.value.hint == "did you mean gpus?"
