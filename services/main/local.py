"""What a command line finds on its own machine: the clock, and the cluster that was started here, if any."""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from runtime.clock import Clock, SystemClock
from runtime.fault import Fault

__all__ = ["CLOCK", "DATA_DIR", "Fault", "Found", "Running", "find_api", "forget", "read_running", "write_running"]

DATA_DIR: Final = ".muster"
RUNNING_FILE: Final = "api.json"  # in the data directory of a running cluster
URL_DEFAULT: Final = "http://127.0.0.1:8080"

CLOCK: Final[Clock] = SystemClock()


class Found(NamedTuple):
    """The address of an API, and how it was found."""

    url: str
    known_from: str


class Running(NamedTuple):
    """Where the servers of a cluster on this machine are. Passwords are not in it: see `credentials.json`."""

    url: str
    nats_url: str
    postgres_dsn: str


def find_api(folder: Path) -> Found:
    """The API of the cluster whose data directory lies in `folder` or the nearest one above it, else the default."""
    for place in (folder, *folder.parents):
        if running := read_running(place / DATA_DIR):
            return Found(running.url, str(place / DATA_DIR / RUNNING_FILE))
    return Found(URL_DEFAULT, "the default")


def read_running(data_dir: Path) -> Running | None:
    """The cluster that runs on a data directory, or did when it was killed; None where there is none."""
    try:
        read = json.loads((data_dir / RUNNING_FILE).read_text())
        return Running(*(str(read[name]) for name in Running._fields))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_running(data_dir: Path, running: Running) -> None:
    """Commands that are called in the folder of `data_dir`, or below, find the cluster."""
    file = data_dir / RUNNING_FILE
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({**running._asdict(), "docs": f"{running.url}/docs", "pid": os.getpid()}) + "\n")
    draft.replace(file)


def forget(data_dir: Path) -> None:
    """No cluster is found through `data_dir`."""
    (data_dir / RUNNING_FILE).unlink(missing_ok=True)
