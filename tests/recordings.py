"""Where real traces and workloads lie, if they do: beside the project, never in it."""

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def recording(name: str) -> Path:
    """The file of that name; the test is skipped where it is not there."""
    file = DATA / name
    if not file.exists():
        pytest.skip(f"needs {name}, a data set that lies beside the project and not in it")
    return file
