"""A user at a machine: `muster up` in one terminal, `muster` commands in another, and a `kill -9` now and then."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from services.main.background import end_leftovers, leftovers
from services.main.local import read_running

MUSTER: Final = (sys.executable, "-I", "-m", "services.cli")
START_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 40.0
COMMAND_WITHIN_S: Final = 60.0
PARTS: Final = {
    "nats": lambda argv: Path(argv[0]).name == "nats-server",
    "postgres": lambda argv: Path(argv[0]).name == "postgres" and "-D" in argv,
    "control": lambda argv: argv[-2:] == ["control", "dispatcher"],
    "front": lambda argv: "projector" in argv,
    "agent": lambda argv: argv[-2:] == ["-m", "agent"],
}


class Said(NamedTuple):
    """What a command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:  # whatever JSON it is
        """Its stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Its stdout as one JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class User:
    """Works in a folder of their own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.data_dir = folder / ".muster"
        self._options = options or ("--nodes", "2", "--gpus-per-node", "8")
        self._up: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """`muster up` says that the cluster is ready."""
        (self.data_dir / "api.json").unlink(missing_ok=True)
        with (self.folder / "up.log").open("ab") as log:
            argv = (*MUSTER, "up", "--port", "0", *self._options)
            self._up = subprocess.Popen(argv, cwd=self.folder, stdout=log, stderr=log, env=environment())
        eventually(lambda: self._running() and read_running(self.data_dir), "the cluster is up", START_WITHIN_S)

    @property
    def url(self) -> str:
        """Where the API is."""
        running = read_running(self.data_dir)
        assert running is not None
        return running.url

    @property
    def alive(self) -> bool:
        """Whether `muster up` runs."""
        return self._up is not None and self._up.poll() is None

    def _running(self) -> bool:
        assert self._up is not None
        assert self._up.poll() is None, (self.folder / "up.log").read_text()
        return True

    def down(self, number: signal.Signals = signal.SIGINT) -> int:
        """`muster up` has ended after a signal; its exit code."""
        assert self._up is not None
        self._up.send_signal(number)
        code = self._up.wait(STOP_WITHIN_S)
        self._up = None
        return code

    def kill_all(self) -> None:
        """Every process of the cluster, ranks and their supervisors excepted, was killed at once."""
        pids = [pid for name in PARTS for pid in self.pids(name)]
        assert self._up is not None
        for pid in (self._up.pid, *pids):
            with suppress(ProcessLookupError):  # it went with its parent
                os.kill(pid, signal.SIGKILL)
        self._up.wait(STOP_WITHIN_S)
        self._up = None

    def pids(self, part: str) -> list[int]:
        """The processes of a part of this user's cluster."""
        found = []
        for pid in leftovers(self.data_dir):
            try:
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
            except OSError:
                continue
            if PARTS[part](argv):
                found.append(pid)
        return found

    def muster(self, *args: str, stdin: str | None = None, within_s: float = COMMAND_WITHIN_S) -> Said:
        """What a command said."""
        argv = (*MUSTER, *args)
        done = subprocess.run(
            argv, cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=within_s, env=environment(),
            check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def ok(self, *args: str, stdin: str | None = None) -> Said:
        """What a command said that must succeed."""
        said = self.muster(*args, stdin=stdin)
        assert said.code == 0, (args, said)
        return said

    def submit(self, spec: dict[str, Any], *args: str) -> str:
        """The id of a job."""
        return self.ok("submit", "-", *args, stdin=json.dumps(spec)).out.strip()

    def state(self, job_id: str) -> str:
        """What a job is now."""
        return str(self.ok("job", job_id, "--json").document["state"])


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[User]:
    """A user with a running cluster in a folder; nothing of it is left after the block."""
    user = User(folder, *options)
    try:
        user.up()
        yield user
    finally:
        if user.alive:
            user.down()
        end_leftovers(user.data_dir)


def agent_of(user: User, node_id: str) -> int:
    """The process of a node's agent."""
    named = f"MUSTER_NODE_ID={node_id}".encode()
    (pid,) = [pid for pid in user.pids("agent") if named in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    return pid


def environment() -> dict[str, str]:
    """Without what the tests' own environment says of a cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")} | {"COLUMNS": "200"}


def eventually(holds: Callable[[], Any], what: str, within_s: float = 30.0) -> None:
    """It holds before the time is over."""
    given_up_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < given_up_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.1)
