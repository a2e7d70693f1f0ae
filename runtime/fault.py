"""`Fault`: what went wrong outside of us, with a code to compare, a sentence to read and a hint what to do."""


class Fault(Exception):
    """A server, a file or the machine is not as it must be."""

    def __init__(self, code: str, sentence: str, hint: str = "") -> None:
        super().__init__(f"{sentence} {hint}".strip())
        self.code = code  # stable: programs compare it
        self.sentence = sentence
        self.hint = hint
