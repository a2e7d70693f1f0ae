"""Rows of one table as they are kept between stretches, and the forms that values take in them."""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from events.base import SlotMask
from runtime.postgres import Connection

KEPT_MAX: Final = 50_000  # rows of a table in memory; above it they are read again when needed

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row", bound=msgspec.Struct)


class Rows(Generic[Key, Row]):
    """Rows by key: read once, changed in place by a fold, written set-wise.

    They are as in the table while nobody else writes it. `load` selects the columns of a row, in order, by arrays of
    the parts of the keys; `write` takes rows as JSON, which costs a tenth of encoding an array for each column.
    """

    def __init__(self, row: Callable[..., Row], key: Callable[[Row], Key], *, load: str, write: str) -> None:
        self._row = row
        self._key = key
        self._load = load
        self._write = write
        self._kept: dict[Key, Row] = {}
        self._changed: dict[Key, Row] = {}

    def __len__(self) -> int:
        """How many rows are kept."""
        return len(self._kept)

    def get(self, key: Key) -> Row | None:
        """The row; None where there is none. Its key was among those loaded."""
        return self._kept.get(key)

    def kept(self) -> list[Row]:
        """All rows that are kept."""
        return list(self._kept.values())

    def put(self, row: Row) -> None:
        """The row is new, or has changed: it will be written."""
        key = self._key(row)
        self._kept[key] = self._changed[key] = row

    def forget(self) -> None:
        """Nothing is kept: the table may have changed."""
        self._kept.clear()
        self._changed.clear()

    async def load(self, conn: Connection, keys: Iterable[Key]) -> None:
        """The rows with these keys are kept, as far as the table has them."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._kept]
        if not missing:
            return
        arrays = zip(*missing, strict=True) if isinstance(missing[0], tuple) else (missing,)
        for record in await conn.fetch(self._load, *map(list, arrays)):
            row = self._row(*record)
            self._kept[self._key(row)] = row

    async def write(self, conn: Connection) -> None:
        """The table has every row that changed."""
        if self._changed:
            await conn.execute(self._write, as_json(self._changed.values()))
            self._changed.clear()
        if len(self._kept) > KEPT_MAX:
            self._kept.clear()


class Added(Generic[Row]):
    """Rows that are only ever added, and never looked at by a fold. `write` takes them as JSON."""

    def __init__(self, *, write: str) -> None:
        self._write = write
        self._added: list[Row] = []

    def add(self, row: Row) -> None:
        """The row will be written."""
        self._added.append(row)

    def forget(self) -> None:
        """Nothing will be written: the table may have it."""
        self._added.clear()

    async def write(self, conn: Connection) -> None:
        """The table has every row that was added."""
        if self._added:
            await conn.execute(self._write, as_json(self._added))
            self._added.clear()


def as_json(rows: Iterable[msgspec.Struct]) -> str:
    """Rows as `json_populate_recordset` takes them: their fields have the names of the columns."""
    return msgspec.json.encode(list(rows)).decode()


def text(value: str) -> str:
    """What PostgreSQL can store of a text that others wrote: no NUL, no half of a pair."""
    if value.isascii():
        return value.replace("\0", "\ufffd")
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def slots_of(mask: SlotMask) -> list[int]:
    """The numbers of the slots in a mask, from the lowest."""
    slots = []
    while mask:
        low = mask & -mask
        slots.append(low.bit_length() - 1)
        mask = SlotMask(mask ^ low)
    return slots
