"""What is wrong with a file that a simulation was to read."""


class BadFile(Exception):
    """The file cannot be used: where, from line 1 (0: the file as a whole), why, and what was meant."""

    def __init__(self, line: int, reason: str, *, hint: str = "") -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
        self.hint = hint
