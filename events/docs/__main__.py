"""`python -m events.docs` writes the documents; with `--check` it says which are stale and exits 1."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from events.codec import TYPES
from events.docs.asyncapi import asyncapi
from events.docs.markdown import markdown
from events.docs.schemas import schemas

FOLDER: Final = Path(__file__).parents[2] / "docs"


def documents() -> dict[Path, str]:
    """The text of every document, by its path below docs/."""
    texts = {Path("events.md"): markdown(), Path("asyncapi.json"): _json(asyncapi())}
    return texts | {Path("schemas", f"{name}.json"): _json(schema) for name, schema in schemas(TYPES).items()}


def stale(folder: Path) -> list[Path]:
    """The documents that are missing, differ from what the types say, or are of no type any more."""
    wanted = documents()
    written = {path for path in wanted if (folder / path).is_file() and (folder / path).read_text() == wanted[path]}
    left_over = {path.relative_to(folder) for path in (folder / "schemas").glob("*.json")} - wanted.keys()
    return sorted((wanted.keys() - written) | left_over)


def write(folder: Path) -> list[Path]:
    """The documents that were written or removed: those that were stale."""
    wanted = documents()
    (folder / "schemas").mkdir(parents=True, exist_ok=True)
    changed = stale(folder)
    for path in changed:
        if path in wanted:
            (folder / path).write_text(wanted[path])
        else:
            (folder / path).unlink()
    return changed


def main(arguments: list[str]) -> int:
    """0; with `--check` 1 when a document is stale."""
    parser = argparse.ArgumentParser(prog="python -m events.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a document is stale")
    if parser.parse_args(arguments).check:
        found = stale(FOLDER)
        sys.stderr.writelines(f"events.docs: docs/{path} is stale: make docs\n" for path in found)
        return 1 if found else 0
    sys.stdout.writelines(f"docs/{path}\n" for path in write(FOLDER))
    return 0


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
