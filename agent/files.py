"""Files that are read whole and written whole: what is there is what was there before, or all of the new."""

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


def write(path: Path, data: bytes, *, durable: bool = False) -> None:
    """The file holds `data`, or still what it held before: never a part. `durable`: also after a loss of power."""
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    partial.replace(path)
    if durable:
        sync_folder(path.parent)


def overwrite(path: Path, data: bytes) -> None:
    """The file holds `data`, of the same few bytes each time: a process that is killed leaves no part of it.

    For what changes often and need not survive the machine: a rename over a file makes some file systems write it out.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        os.pwrite(file, data, 0)
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """What the folder names is so also after a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
