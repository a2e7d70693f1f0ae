"""Small files of an agent: read whole, and overwritten in place where they change often. `runtime.files` writes others."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from runtime.fault import Fault

T = TypeVar("T")


def read(path: Path) -> bytes:
    """What the file holds; nothing where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def decoded(path: Path, cls: type[T]) -> T | None:
    """What the file holds; None where there is none. Raises `Fault` where it cannot be read."""
    data = read(path)
    try:
        return msgspec.json.decode(data, type=cls) if data else None
    except msgspec.DecodeError as error:
        hint = "Was it edited, or written by another version? With nothing running on the node it may be removed."
        raise Fault("record_unreadable", f"{path} cannot be read: {error}.", hint) from error


def overwrite(path: Path, data: bytes) -> None:
    """The file holds `data`, of the same few bytes each time: a process that is killed leaves no part of it.

    For what changes often and need not survive the machine: a rename over a file makes some file systems write it out.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        os.pwrite(file, data, 0)
    finally:
        os.close(file)
