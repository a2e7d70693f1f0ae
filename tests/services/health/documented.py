"""`python -m tests.services.health.documented`: the table of docs/gpu-health.md is the one of the code."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from services.health.table import (
    OFFENDER,
    RECOVERY_ACTIONS,
    REPEATS,
    RESET_FAILED,
    SIGNALS,
    TABLE_VERSION,
    UNKNOWN_RECOVERY,
    UNKNOWN_XID,
    XIDS,
    Line,
)

DOCUMENT: Final = Path("docs/gpu-health.md")
BETWEEN: Final = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


def table() -> str:
    """The lines, as Markdown."""
    head = [
        f"Version `{TABLE_VERSION}`.\n",
        "| Signal | Code | Action | Returned by | Meaning |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    by_line = sorted(((line, code) for code, line in XIDS.items()), key=lambda pair: list(XIDS.values()).index(pair[0]))
    for line, pairs in groupby(by_line, key=lambda pair: pair[0]):
        yield _row("xid", _codes(sorted(code for _, code in pairs)), line)
    yield _row("xid", "any other", UNKNOWN_XID)
    for repeat in REPEATS:
        yield _row("xid", f"{repeat.code} again within 24 h, not within {repeat.burst_s:.0f} s", repeat.line)
    for code, line in RECOVERY_ACTIONS.items():
        yield _row("recovery_action", str(code), line)
    yield _row("recovery_action", "any other", UNKNOWN_RECOVERY)
    for signal, line in SIGNALS.items():
        yield _row(signal.value, "", line)
    yield _row("a reset failed", "", RESET_FAILED)
    yield _row("the fifth fault of a GPU in 24 h", "", OFFENDER)


def _row(signal: str, code: str, line: Line) -> str:
    action = f"`{line.action.value}`" + (", drains the node" if line.whole_node else "")
    return f"| `{signal}` | {code} | {action} | {', '.join(line.returns_by)} | {line.words} |".replace("|  |", "| |")


def _codes(codes: Iterable[int]) -> str:
    """`13 31 95-99`."""
    told = []
    for _, run in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        numbers = [code for _, code in run]
        if len(numbers) > 2:
            told.append(f"{numbers[0]}-{numbers[-1]}")
        else:
            told += map(str, numbers)
    return " ".join(told)


if __name__ == "__main__":
    DOCUMENT.write_text(BETWEEN.sub(lambda _: table(), DOCUMENT.read_text("utf-8")), "utf-8")
