"""The page about faults of other schedulers: each has a test, and that test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "faults-of-others.md"
ROW = re.compile(
    r"\| (?P<fault>[^|]*#\d+[^|]*) \| [^|]+ \| [^|]+ \| `(?P<path>tests/[^`:]+\.py)::(?P<test>test_\w+)` \|"
)


def names_in(path: str) -> set[str]:
    """The functions of a file; none of one that is not there."""
    file = ROOT / path
    nodes = ast.walk(ast.parse(file.read_text("utf-8"))) if file.is_file() else iter(())
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_fault_of_others_has_a_test_that_exists() -> None:
    """A test that is renamed or removed is noticed here."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if "#" in line and line.startswith("|")]
    rows = [found for line in lines if (found := ROW.fullmatch(line))]
    assert len(rows) == len(lines) > 50, "each line names a fault, what holds, and a test"

    missing = [
        f"{row['fault']}: {row['path']}::{row['test']}" for row in rows if row["test"] not in names_in(row["path"])
    ]
    assert missing == []
