"""Exit codes of the muster command, and the failure that ends it with one."""

import sys
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """What the process says to a script. A job's own exit code is passed on as it is by what waits for a job."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    TIMEOUT = 5
    ENDED_OTHERWISE = 6  # cancelled, timed out, rejected, or failed without an exit code
    HELD = 7  # the job waits for a person: failures that are not its own have ended it too often
    INTERRUPTED = 130  # 128 + SIGINT


EXIT_CODES: Final = (
    "Exit codes: 0 ok, 1 refused, 2 wrong usage, 3 not found, 4 server unreachable, 5 timeout, "
    "6 the job ended otherwise (cancelled, timed out, rejected), "
    "7 it is held: failures that are not its own ended it too often. "
    "A command that waits for a job exits with the job's own code (1 to 255) when it failed."
)


class Failure(Exception):
    """The command cannot do what was asked: `thing` is what it was about, `reason` a sentence, `hint` what to do."""

    def __init__(self, thing: str, reason: str, *, hint: str = "", code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(f"{thing}: {reason}" if thing else reason)
        self.hint = hint
        self.code = code

    def show(self) -> None:
        """The message is on stderr."""
        say(str(self))
        if self.hint:
            say(f"hint: {self.hint}")


def say(message: str) -> None:
    """A message for people is on stderr, after the name of the program."""
    print(f"muster: {message}", file=sys.stderr, flush=True)
