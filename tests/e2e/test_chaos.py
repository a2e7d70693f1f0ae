"""A stream of jobs while parts of the cluster are killed and frozen at random, from a seed: all that was taken in ends well.

`CHAOS_S=180 CHAOS_SEED=7 pytest tests/e2e/test_chaos.py` does it for longer, in another order.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import httpx
import pytest

from bench.ranks import ENDS, RANK, SHARED, STARTS, noted
from services.main.background import end_leftovers, leftovers
from tests.e2e.user import User, eventually
from tests.fixtures.waiting import freeze

CHAOS_S: Final = float(os.environ.get("CHAOS_S", "15"))
SEED: Final = int(os.environ.get("CHAOS_SEED", "1"))
SETTLED_WITHIN_S: Final = 60.0
NODES, GPUS_PER_NODE = 4, 4
JOB_EVERY_S: Final = 0.4
FROZEN_S: Final = (0.2, 6.0)  # with nodes that are lost after three
# How often each is hit. Of servers that die again and again `muster up` thinks that they will not get well.
TARGETS: Final = {"agent": 6, "control": 3, "front": 3, "postgres": 1, "nats": 1}
ENDED: Final = {"succeeded", "failed", "cancelled"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(CHAOS_S) + 180)]


class Asked(NamedTuple):
    """A job that the cluster has taken in, and how it may end."""

    gpus: int
    code: int
    cancelled: bool

    @property
    def outcomes(self) -> set[str]:
        """The states in which it may end."""
        own = {"failed"} if self.code else {"succeeded"}
        return own | {"cancelled"} if self.cancelled else own


class Crowd(threading.Thread):
    """Users who submit jobs, under one key until they are taken, and sometimes cancel one."""

    def __init__(self, user: User, random: Random) -> None:
        super().__init__(daemon=True)
        self.taken: dict[str, Asked] = {}
        self._user = user
        self._random = random
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        number = 0
        with httpx.Client(base_url=self._user.url, timeout=3.0) as client:
            while not self._stopped.wait(JOB_EVERY_S):
                number += 1
                self._submit(client, number)

    def stop(self) -> None:
        """What was asked last has been taken in."""
        self._stopped.set()
        self.join(SETTLED_WITHIN_S)
        assert not self.is_alive(), "the API takes nothing in"

    def _submit(self, client: httpx.Client, number: int) -> None:
        random = self._random
        asked = Asked(
            gpus=random.choice((1, 1, 1, 1, 2, 2, 3, 4, 6, 8)),
            code=random.choice((0, 0, 0, 0, 0, 0, 0, 3)),
            cancelled=random.random() < 0.15,
        )
        script = RANK.format(folder=self._user.folder, sleep_s=random.choice((0.2, 0.5, 1, 2)), code=asked.code)
        spec = {"name": f"job-{number}", "gpus": asked.gpus, "command": ["sh", "-c", script], "stop_grace_s": 1}
        body = {"key": f"key-{number}", "spec": spec | {"retries_infrastructure": 50}}
        job_id = self._said(client, "/v1/jobs", body)["job_id"]
        self.taken[job_id] = asked
        if asked.cancelled:
            time.sleep(random.choice((0, 0.01, 0.1, 0.5)))
            self._said(client, f"/v1/jobs/{job_id}:cancel", {})

    def _said(self, client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of an API that may be away for a while, or not know what became of what it was asked."""
        given_up_s = time.monotonic() + SETTLED_WITHIN_S
        while True:
            with suppress(httpx.TransportError):
                answer = client.post(path, json=body, headers={"Muster-Team": "default"})
                if answer.is_success:
                    said: dict[str, Any] = answer.json()
                    return said
                assert answer.status_code in {503, 504}, answer.text
            assert time.monotonic() < given_up_s, f"{path} is not answered"
            time.sleep(0.2)


def hit(user: User, random: Random) -> str:
    """One process of one part was killed, or frozen for a while; what was done."""
    part = random.choices([*TARGETS], [*TARGETS.values()])[0]
    pids = user.pids(part)
    if not pids:
        return f"{part}: none there"
    pid = min(pids) if part == "postgres" else random.choice(pids)
    frozen_s = random.uniform(*FROZEN_S) if random.random() < 0.4 else 0.0
    with suppress(ProcessLookupError):
        if not frozen_s:
            os.kill(pid, signal.SIGKILL)
            return f"{part} {pid}: killed"
        freeze(pid)
        time.sleep(frozen_s)
        os.kill(pid, signal.SIGCONT)
    return f"{part} {pid}: frozen for {frozen_s:.1f} s"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """Of a cluster that gives a silent node up after three seconds."""
    user = User(tmp_path, "--nodes", str(NODES), "--gpus-per-node", str(GPUS_PER_NODE), "--lost-after-s", "3")
    try:
        user.up()
        yield user
        if user.alive:
            user.down()
            assert leftovers(user.data_dir) == [], "nothing lives on where every job has ended"
    finally:
        if user.alive:
            user.down(signal.SIGKILL)
        end_leftovers(user.data_dir)


def test_all_that_was_taken_in_ends_well_whatever_is_killed_meanwhile(user: User) -> None:
    """Every job ends as it may, no rank starts twice, no GPU is shared, every GPU comes back, tables and log hold."""
    random = Random(SEED)
    crowd = Crowd(user, Random(SEED + 1))
    crowd.start()
    until_s = time.monotonic() + CHAOS_S
    done = []
    while time.monotonic() < until_s:
        time.sleep(random.uniform(0.2, 2.0))
        done.append(f"{time.strftime('%H:%M:%S')} {hit(user, random)}")
        assert user.alive, ("\n".join(done), (user.folder / "up.log").read_text())
    crowd.stop()
    (user.folder / "hits").write_text("\n".join(done))

    eventually(lambda: not unended(user, crowd.taken), "every job has ended", SETTLED_WITHIN_S)
    eventually(lambda: free(user) == NODES * GPUS_PER_NODE, "every GPU is free")
    assert not (user.folder / SHARED).exists(), (user.folder / SHARED).read_text()
    known = jobs(user)
    for job_id, asked in crowd.taken.items():
        ended_well(user, known[job_id], asked)
    said = user.muster("verify")
    assert said.code == 0, said


def jobs(user: User) -> dict[str, dict[str, Any]]:
    """Every job by its id."""
    return {job["job_id"]: job for job in user.ok("jobs", "--all", "--json").documents}


def unended(user: User, taken: dict[str, Asked]) -> dict[str, str]:
    """The jobs that have not ended, or are not there."""
    known = {job_id: job["state"] for job_id, job in jobs(user).items()}
    return {job_id: known.get(job_id, "lost") for job_id in taken if known.get(job_id) not in ENDED}


def free(user: User) -> int:
    """GPUs that may be given away."""
    return sum(node["gpus_free"] for node in user.ok("nodes", "--json").documents)


def ended_well(user: User, job: dict[str, Any], asked: Asked) -> None:
    """The job ended as it may; no rank of an attempt started twice, and of the last one that succeeded each has ended."""
    job_id = job["job_id"]
    assert job["state"] in asked.outcomes, job
    started, ended = (noted(user.folder / name)[job_id] for name in (STARTS, ENDS))
    for attempt, ranks in started.items():
        assert len(set(ranks)) == len(ranks), f"{job_id}: attempt {attempt} started {ranks}"
        assert attempt <= job["attempt"]
    if job["state"] == "succeeded":
        assert sorted(started[job["attempt"]]) == sorted(ended[job["attempt"]]) == list(range(asked.gpus)), job
