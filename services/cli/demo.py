"""`muster demo`: a cluster for the length of one command, the examples run on it, a GPU fails under them, and what happened."""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table

import services
from services.cli.attempts import print_attempts
from services.cli.client import Client, Server
from services.cli.ended import TERMINAL
from services.cli.failure import ExitCode, Failure, say
from services.cli.fleet import NODE_COLUMNS, node_row
from services.cli.jobs import COLUMNS, print_timeline, row, timeline_of
from services.cli.logs import print_line
from services.cli.options import job_path
from services.cli.specfile import read_spec
from services.cli.table import print_table
from services.cli.why import print_why
from services.main.background import background_cluster, end_leftovers
from services.main.inject import Wish, wished
from services.main.local import CLOCK
from services.main.tables import verdict

EXAMPLES: Final = Path(services.__file__).parent.parent / "examples"
GANG, WAITS = "gang", "too-large"
SMALL: Final = ("small", "small", "small", "small")
WITHIN_S: Final = 90.0  # for all jobs that can run
LOOK_EVERY_S: Final = 0.2
CANCEL_WITHIN_S: Final = 15.0
XID: Final = 79  # the GPU has fallen off the bus: it is out, and its node is drained
TAIL: Final = 8


class Ask(NamedTuple):
    """A job of the demo."""

    job_id: str
    example: str


def run_demo(*, keep: bool) -> int:
    """The exit code: 0 when the gang succeeded and the check of the log found nothing. Nothing is left running."""
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    try:
        return _demo(folder / "cluster")
    except KeyboardInterrupt:
        say("interrupted: everything that was started has been ended")
        return ExitCode.INTERRUPTED
    finally:
        end_leftovers(folder)
        if keep:
            say(f"data and logs are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _demo(data_dir: Path) -> int:
    began_s = CLOCK.monotonic()
    _title("starting NATS, PostgreSQL, the control plane and 4 nodes with 8 simulated GPUs each")
    with background_cluster(data_dir, "--port", "0", "--nodes", "4", "--gpus-per-node", "8") as url:
        print(f"ready after {CLOCK.monotonic() - began_s:.1f} s: {url}, documentation at {url}/docs")
        with Client(Server(url, "the demo")) as client, _ended_with(client):
            asks = _submit_all(client, data_dir.parent / "checkpoints")
            _follow(client, asks, data_dir)
            gang = _show(client, asks)
            _title("the log, checked by a reader that shares no code with the scheduler; the tables, rebuilt from it")
            ok, lines = verdict(data_dir)
            print("\n".join(lines))
    _title(f"done in {CLOCK.monotonic() - began_s:.1f} s; nothing is left running. What to try next")
    print(NEXT)
    if gang["state"] != "succeeded":
        say(f"the gang has not succeeded: it is {gang['state']}")
    return ExitCode.OK if ok and gang["state"] == "succeeded" else ExitCode.REFUSED


NEXT: Final = """\
  .venv/bin/muster up                                    keep a cluster running (data in .muster), then, elsewhere:
  .venv/bin/muster run --gpus 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE'
  .venv/bin/muster submit examples/gang.yaml --follow
  .venv/bin/muster events -f                             the log, as it is written
  .venv/bin/muster node inject node-1 --xid 79           a GPU falls off the bus; muster node node-1 says what returns it
  kill -9 anything                                       and look at muster jobs again"""


def _title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _submit_all(client: Client, checkpoints: Path) -> list[Ask]:
    """The examples are submitted: the gang, its checkpoints where all nodes see them, the one that cannot fit, the small ones."""
    _title("submitting examples/ through the HTTP API")
    asks = []
    for number, example in enumerate((GANG, WAITS, *SMALL)):
        spec = read_spec(str(EXAMPLES / f"{example}.yaml"))
        body = spec.body
        if example == GANG:
            body = body | {"checkpoint": body["checkpoint"] | {"directory": str(checkpoints)}}
        answer = client.post("/jobs", {"spec": body, "key": f"demo-{number}"}, thing=spec.origin)
        asks.append(Ask(str(answer["job_id"]), example))
        print(f"{answer['job_id']}  examples/{example}.yaml")
    return asks


def _follow(client: Client, asks: list[Ask], data_dir: Path) -> None:
    """Every job that can run has ended; meanwhile their states are shown: a table on a terminal, else line by line.

    Once the gang has saved a checkpoint, a GPU fails under it.
    """
    _title("what happens")
    given_up_s = CLOCK.monotonic() + WITHIN_S
    gang_id = next(ask.job_id for ask in asks if ask.example == GANG)
    console, told, broken = Console(), dict[str, str](), ""
    live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
    if live is not None:
        live.start()
    try:
        while CLOCK.monotonic() < given_up_s:
            if not broken and (broken := _broken(client, gang_id, data_dir)):
                console.print(broken, highlight=False, soft_wrap=True)
            jobs = _jobs(client, asks)
            if live is not None:
                live.update(_live_table(jobs))
            else:
                _print_changes(jobs, told)
            if all(job["state"] in TERMINAL for job, ask in zip(jobs, asks, strict=True) if ask.example != WAITS):
                return
            time.sleep(LOOK_EVERY_S)
    finally:
        if live is not None:
            live.stop()
    raise Failure("demo", f"not all jobs have ended within {WITHIN_S:g} s", code=ExitCode.TIMEOUT)


def _broken(client: Client, gang_id: str, data_dir: Path) -> str:
    """What was broken under the gang; empty as long as it has no checkpoint to go on from, and nothing is."""
    attempts = client.get(job_path(gang_id), thing=gang_id)["attempts"]
    if not attempts or attempts[-1]["state"] != "running" or attempts[-1]["checkpoint"] is None:
        return ""
    node = str(attempts[-1]["node_ids"][-1])
    wished(node, Wish(xid=XID, gpu=0), data_dir, data_dir)
    return f"-- checkpoint {attempts[-1]['checkpoint']} of the gang is safe: now GPU 0 of {node} falls off the bus (XID {XID})"


def _jobs(client: Client, asks: list[Ask]) -> list[dict[str, Any]]:
    """The documents of the jobs, in the order of the asks; those that the tables do not show yet are left out."""
    by_id = {job["job_id"]: job for job in client.get("/jobs", {"limit": 100}, thing="jobs")["jobs"]}
    return [by_id.get(ask.job_id, {"job_id": ask.job_id, "name": ask.example, "state": "submitted"}) for ask in asks]


def _live_table(jobs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("JOB", "NAME", "STATE", "GPUS", "NODES", "INFO"):
        table.add_column(title, no_wrap=True)
    for job in jobs:
        info = str(job.get("reason") or "").replace("_", " ")
        nodes = ", ".join(job.get("node_ids") or ())
        table.add_row(job["job_id"], job["name"], job["state"], str(job.get("gpus", "")), nodes, info)
    return table


def _print_changes(jobs: list[dict[str, Any]], told: dict[str, str]) -> None:
    for job in jobs:
        line = " ".join(filter(None, (job["state"], str(job.get("reason") or "").replace("_", " "))))
        if told.get(job["job_id"]) != line:
            told[job["job_id"]] = line
            print(f"{job['job_id']}  {job['name']:<12}  {line}", flush=True)


def _show(client: Client, asks: list[Ask]) -> dict[str, Any]:
    """Jobs and nodes, the gang's attempts, timeline and last words, and why the large one waits; returns the gang."""
    jobs = _jobs(client, asks)
    gang_id = next(ask.job_id for ask in asks if ask.example == GANG)
    waits_id = next(ask.job_id for ask in asks if ask.example == WAITS)
    _title("muster jobs")
    print_table(COLUMNS, [row(job, client.now) for job in jobs])
    _title("muster nodes")
    print_table(NODE_COLUMNS, [node_row(node, client.now) for node in client.get("/nodes", thing="nodes")["nodes"]])
    _title(f"muster job {gang_id}: its attempts, and its timeline from the event log")
    print_attempts(client.get(job_path(gang_id), thing=gang_id)["attempts"], client.now)
    print()
    print_timeline(timeline_of(client, gang_id))
    _title(f"muster logs {gang_id} --rank 0 --tail {TAIL}")
    for line in client.get(job_path(gang_id, "logs"), {"rank": 0, "tail": TAIL}, thing=gang_id)["lines"]:
        print_line(line, as_json=False, with_rank=False)
    _title(f"muster why {waits_id}")
    print_why(client.get(job_path(waits_id, "why"), thing=waits_id), client.now)
    return next(job for job in jobs if job["job_id"] == gang_id)


@contextmanager
def _ended_with(client: Client) -> Iterator[None]:
    """Jobs that are still there when the block is left early are ended: their processes would outlive the cluster."""
    try:
        yield
    except BaseException:
        say("ending what still runs")
        given_up_s = CLOCK.monotonic() + CANCEL_WITHIN_S
        asked: set[str] = set()
        while CLOCK.monotonic() < given_up_s:
            rest = [job for job in client.get("/jobs", {"limit": 100})["jobs"] if job["state"] not in TERMINAL]
            for job in rest:
                if job["job_id"] not in asked:
                    client.post(f"{job_path(job['job_id'])}:cancel", {"reason": "the demo ends"})
                    asked.add(job["job_id"])
            if not rest:
                break
            time.sleep(LOOK_EVERY_S)
        raise
