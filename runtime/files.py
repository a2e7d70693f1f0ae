"""Files that are whole: what is there is what was there before, or all of the new; where asked, after a loss of power too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """A new file, whose content is on the disk once the block is left."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, data: bytes, *, lasting: bool = False) -> None:
    """The file holds `data`, or still what it held before: never a part. `lasting`: also after a loss of power."""
    partial = path.with_name(path.name + ".part")
    with durable(partial) if lasting else partial.open("wb") as file:
        file.write(data)
    partial.replace(path)
    if lasting:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What the folder names is so also after a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
