"""Files and logs as simulations get them, and what is wrong with them."""

import gzip
from pathlib import Path

import pytest

from events.base import START, JobId, position_of
from events.head import LeadershipTaken, LogFounded
from events.job import JobSpec, JobSubmitted
from events.log.memory import MemoryLog
from runtime.clock import ManualClock
from runtime.fault import Fault
from services.main.simulate import BadFile, Instead, folded, log, place, trace, workload

TRACE = "job_id,submit_s,gpus,runtime_s\na,0,8,10\nb,0,8,20\nc,0,99,1\n"


def unwatched(_done: int, _total: int) -> None:
    """Nobody looks."""


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_trace_is_read_packed_or_not(name: str, tmp_path: Path) -> None:
    """By the end of its name; a mark of the byte order at its beginning is no part of it."""
    data = b"\xef\xbb\xbf" + TRACE.encode()
    (tmp_path / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    outcome = trace(tmp_path / name, (1, 8), ("fifo", "none"), unwatched)
    wanted = {"jobs": 3, "dropped": 1, "wait_mean_s": 5, "completion_mean_s": 20, "makespan_s": 30, "utilisation": 1}
    assert outcome.document | wanted == outcome.document
    assert "3 jobs, utilisation 100.0%, waits: mean 5 s" in outcome.svg("title")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "not UTF-8"),
        (gzip.compress(TRACE.encode(), mtime=0)[:-12], "not a whole gzip file"),
        (TRACE.encode(), "not a whole gzip file"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_bad_file(data: bytes | None, said: str, tmp_path: Path) -> None:
    """It is said what is wrong with it."""
    file = tmp_path / ("t.csv.gz" if data is None or not data.startswith(b"\xff") else "t.csv")
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(BadFile, match=said):
        trace(file, (1, 8), ("fifo", "none"), unwatched)


def test_the_format_of_a_workload_is_told_by_what_it_has() -> None:
    """Cohorts are Kueue's, nodes are ours."""
    with pytest.raises(BadFile, match="name: is missing"):
        workload({"cohorts": []}, 0, unwatched)
    with pytest.raises(BadFile, match="jobs: is missing"):
        workload({"nodes": [{}]}, 0, unwatched)


def test_a_list_is_placed(tmp_path: Path) -> None:
    """On the nodes that are asked for."""
    (tmp_path / "jobs").write_text("8\n4\n")
    assert place(tmp_path / "jobs", (2, 8), "spread")["free_gpus"] == 4


async def test_the_fold_is_that_of_the_position_that_was_asked_for() -> None:
    """With the times at which its jobs were submitted; a position beyond the end is none."""
    clock = ManualClock()
    memory = MemoryLog("main", clock.now)
    founding = [
        LogFounded(at=clock.now(), log_id="l", cell="main"),
        LeadershipTaken(at=clock.now(), instance="a", version=""),
    ]
    await memory.append(founding[:1], after=START)
    for name in ("a", "b"):
        clock.advance(10)
        spec = JobSpec(name=name, command=("true",), gpus=1)
        submitted = JobSubmitted(at=clock.now(), team="t", job_id=JobId(name), spec=spec, key=name, request_hash="h")  # type: ignore[arg-type]
        await memory.record([submitted])
    first, times = await folded(memory, position_of(1, 2))
    assert list(first.jobs) == list(times) == ["a"]
    last, times = await folded(memory, 0)
    assert list(last.jobs) == ["a", "b"]
    assert (times[JobId("b")] - times[JobId("a")]).total_seconds() == 10
    with pytest.raises(Fault, match="ends at 1:3, before 1:9"):
        await folded(memory, position_of(1, 9))


def test_documents_to_try_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    """Where both are wrong, or no cluster is there, that is what is said."""
    with pytest.raises(BadFile, match="orders: there is no such field"):
        log(tmp_path, 0, 60, Instead(policy={"orders": "fifo"}))
    with pytest.raises(BadFile, match=r"queues\.0\.wait"):
        log(tmp_path, 0, 60, Instead(queues={"queues": [{"name": "a", "wait": 1}]}))
    with pytest.raises(Fault, match="No cluster runs"):
        log(tmp_path, 0, 60, Instead())
