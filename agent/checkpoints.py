"""The file in which a job says which of its checkpoints is safe: read as what anybody may have written."""

import os
import stat
from pathlib import Path
from typing import Final

NUMBER_MAX: Final = (1 << 31) - 1  # that an event holds
BYTES_MAX: Final = 32


def number_in(path: Path) -> int:
    """The number in the file, up to `NUMBER_MAX`; 0 where there is none.

    Whatever else is there counts as none: no file, a folder, a pipe (opening one never waits), other text, a number that
    is too large. Of a number that is half written the first digits are a smaller one, so that too much is never said.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return 0
        text = os.read(descriptor, BYTES_MAX).strip()
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    number = int(text) if text.isdigit() and len(text) < BYTES_MAX else 0
    return number if number <= NUMBER_MAX else 0
