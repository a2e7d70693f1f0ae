"""What a command line finds on its own machine: the clock, and the cluster that was started here, if any."""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from runtime.clock import Clock, SystemClock
from runtime.fault import Fault

__all__ = ["CLOCK", "DATA_DIR", "Fault", "Found", "find_api", "forget_api", "write_api"]

DATA_DIR: Final = ".muster"
API_FILE: Final = "api.json"  # in the data directory of a running cluster
URL_DEFAULT: Final = "http://127.0.0.1:8080"

CLOCK: Final[Clock] = SystemClock()


class Found(NamedTuple):
    """The address of an API, and how it was found."""

    url: str
    known_from: str


def find_api(folder: Path) -> Found:
    """The API of the cluster whose data directory lies in `folder` or the nearest one above it, else the default."""
    for place in (folder, *folder.parents):
        file = place / DATA_DIR / API_FILE
        try:
            return Found(str(json.loads(file.read_text())["url"]), str(file))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # none here, or one that is being written
    return Found(URL_DEFAULT, "the default")


def write_api(data_dir: Path, url: str) -> None:
    """Commands that are called in the folder of `data_dir`, or below, find the API at `url`."""
    file = data_dir / API_FILE
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"url": url, "docs": f"{url}/docs", "pid": os.getpid()}) + "\n")
    draft.replace(file)


def forget_api(data_dir: Path) -> None:
    """No API is found through `data_dir`."""
    (data_dir / API_FILE).unlink(missing_ok=True)
