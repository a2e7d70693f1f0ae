"""`python -m tests.golden.write`: a file for every type that has none yet. Files that are there stay as they are."""

from pathlib import Path

from events.codec import Codec, type_of
from tests.events.examples import EXAMPLES, STAMP

FOLDER = Path(__file__).parent


def main() -> None:
    """Every type has its golden file."""
    codec = Codec()
    for event in EXAMPLES:
        path = FOLDER / f"{type_of(type(event))}.json"
        if not path.exists():
            path.write_bytes(codec.encode(event, STAMP))


if __name__ == "__main__":
    main()
