"""Events of every type keep the bytes they were released with."""

from pathlib import Path

import msgspec
import pytest

from events.base import Unreadable
from events.codec import Codec, type_of
from tests.events.examples import EXAMPLES, STAMP

FOLDER = Path(__file__).parent.parent / "golden"
FILES = sorted(FOLDER.glob("*.json"))
BY_TYPE = {type_of(type(event)): event for event in EXAMPLES}
CODEC = Codec()


def _type(path: Path) -> str:
    """The event type that a file is of: `<type>.json`, or `<type>+<field>.json` once a field came later."""
    return path.stem.partition("+")[0]


NEWEST = {
    name: max((path for path in FILES if _type(path) == name), key=lambda path: len(path.name)) for name in BY_TYPE
}


def test_every_type_has_an_example_and_a_golden_file() -> None:
    """A type without its bytes could change unseen; `python -m tests.golden.write` writes what is missing."""
    assert BY_TYPE.keys() == CODEC.documents().keys()
    assert BY_TYPE.keys() <= {_type(path) for path in FILES}


def test_examples_set_every_field() -> None:
    """A field left at its default would not show how it is written."""
    for event in EXAMPLES:
        for field in msgspec.structs.fields(event):
            default = field.default_factory() if callable(field.default_factory) else field.default
            assert getattr(event, field.name) != default, f"{type(event).__name__}.{field.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_bytes_are_read(path: Path) -> None:
    """Whatever was released once is read for ever, as the event it was or lifted to a newer one."""
    payload = path.read_bytes()

    event, identity = CODEC.decode(msgspec.json.decode(payload)["subject"], payload)

    assert not isinstance(event, Unreadable), event
    assert identity == STAMP.id
    if path == NEWEST.get(_type(path)):
        assert event == BY_TYPE[_type(path)]


@pytest.mark.parametrize("path", NEWEST.values(), ids=lambda path: path.stem)
def test_events_are_written_as_their_golden_bytes(path: Path) -> None:
    """What is written today is byte for byte what was released: hashes and signatures over it stay true."""
    assert CODEC.encode(BY_TYPE[_type(path)], STAMP) == path.read_bytes()
