"""What is killed while jobs run comes back, every job ends as it should, and nothing runs twice."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.user import PARTS, User, eventually

pytestmark = [pytest.mark.slow]


def waiting(folder: Path, name: str, gpus: int) -> dict[str, Any]:
    """A job whose ranks note each start of theirs, then wait for the file `NAME.go`, then note their end."""
    script = (
        f'echo "$RANK $$" >> {folder}/{name}.starts; while [ ! -e {folder}/{name}.go ]; do sleep 0.1; done; '
        f"echo $RANK >> {folder}/{name}.ends; echo done $RANK"
    )
    return {"name": name, "gpus": gpus, "command": ["sh", "-c", script]}


def starts(folder: Path, name: str) -> dict[int, int]:
    """The process of each rank. Fails when a rank was started twice."""
    file = folder / f"{name}.starts"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    assert len({rank for rank, _ in lines}) == len(lines), f"started twice: {lines}"
    return {int(rank): int(pid) for rank, pid in lines}


def ended_whole(user: User, job_id: str, name: str, gpus: int) -> None:
    """The job goes on to its end, in its first attempt, every rank of it once."""
    (user.folder / f"{name}.go").touch()
    assert user.muster("wait", job_id, "--timeout", "40").code == 0
    assert sorted(starts(user.folder, name)) == list(range(gpus))
    assert sorted((user.folder / f"{name}.ends").read_text().split(), key=int) == [str(n) for n in range(gpus)]
    job = user.ok("job", job_id, "--json").document
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert sorted(user.ok("logs", job_id).out.splitlines()) == sorted(f"{n}: done {n}" for n in range(gpus))


def all_is_well(user: User) -> None:
    """No GPU is held, tables are what the log says, the log breaks no law."""
    eventually(
        lambda: sum(node["gpus_free"] for node in user.ok("nodes", "--json").documents) == 16, "every GPU is free"
    )
    said = user.muster("verify")
    assert said.code == 0, said


def test_ctrl_c_and_a_new_start_adopt_what_runs(breaker: User) -> None:
    """The cluster ends in order, the ranks live on and are the same processes afterwards; what waited still waits."""
    user = breaker
    job_id = user.submit(waiting(user.folder, "adopted", 16))
    later = user.submit({"name": "later", "gpus": 1, "command": ["true"]})
    eventually(lambda: len(starts(user.folder, "adopted")) == 16, "all ranks run")
    before, url = starts(user.folder, "adopted"), user.url

    assert user.down(signal.SIGINT) == 0
    assert not any(user.pids(part) for part in PARTS), "nothing but ranks is left"
    assert user.muster("jobs", "--api-url", url).code == 4
    assert all(Path(f"/proc/{pid}").exists() for pid in before.values())

    user.up()
    assert user.state(job_id) == "running"
    assert starts(user.folder, "adopted") == before
    ended_whole(user, job_id, "adopted", 16)
    assert user.muster("wait", later, "--timeout", "20").code == 0
    all_is_well(user)


def test_each_part_may_be_killed_while_jobs_run(breaker: User) -> None:
    """NATS, PostgreSQL, the control plane, what is in front of it, an agent: each comes back and work goes on."""
    user = breaker
    job_id = user.submit(waiting(user.folder, "through", 12))
    eventually(lambda: len(starts(user.folder, "through")) == 12, "all ranks run")
    for part in PARTS:
        before = user.pids(part)
        assert before, part
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda part=part, old=before[0]: old not in user.pids(part) and user.pids(part), f"{part} is back")
        small = {"name": part, "gpus": 2, "command": ["sh", "-c", "echo $RANK"]}
        said = user.muster("submit", "-", "--key", f"after-{part}", stdin=json.dumps(small))
        eventually(
            lambda part=part, small=small: (
                user.muster("submit", "-", "--key", f"after-{part}", stdin=json.dumps(small)).code == 0
            ),
            f"a job is taken after {part} was killed: {said}",
        )
        small_id = user.ok("submit", "-", "--key", f"after-{part}", stdin=json.dumps(small)).out.strip()
        eventually(lambda small_id=small_id: user.muster("job", small_id).code == 0, "the tables have caught up")
        assert user.muster("wait", small_id, "--timeout", "40").code == 0, part
    ended_whole(user, job_id, "through", 12)
    all_is_well(user)


def test_everything_may_be_killed_at_once(breaker: User) -> None:
    """Twice, with a job running and another just accepted: the next start goes on where it was."""
    user = breaker
    job_id = user.submit(waiting(user.folder, "lasting", 16))
    eventually(lambda: len(starts(user.folder, "lasting")) == 16, "all ranks run")
    user.kill_all()
    user.up()
    accepted = user.submit(waiting(user.folder, "accepted", 4))
    user.kill_all()
    user.up()
    ended_whole(user, job_id, "lasting", 16)
    ended_whole(user, accepted, "accepted", 4)
    all_is_well(user)
