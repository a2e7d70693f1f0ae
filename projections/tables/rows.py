"""Rows of one table as they are kept between stretches, and the forms that values take in them."""

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from events.base import SlotMask
from runtime.postgres import Connection

KEPT_MAX: Final = 50_000  # rows of a table in memory; above it they are read again when needed

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row", bound=msgspec.Struct)


class Statements(NamedTuple):
    """How rows are read and written set-wise."""

    load: str  # selects all columns, in order, by arrays of the parts of the keys
    insert: str  # takes an array for each column
    update: str  # takes an array for each of `changing`
    changing: tuple[str, ...]  # the key, and the columns that may change after a row was inserted


class Rows(Generic[Key, Row]):
    """Rows by key: read once, changed in place by a fold, written set-wise. As in the table while nobody else writes it."""

    def __init__(self, row: type[Row], key: Callable[[Row], Key], statements: Statements) -> None:
        self._row = row
        self._key = key
        self._statements = statements
        self._changing = attrgetter(*statements.changing)
        self._kept: dict[Key, Row] = {}
        self._new: dict[Key, Row] = {}
        self._changed: dict[Key, Row] = {}

    def __len__(self) -> int:
        """How many rows are kept."""
        return len(self._kept)

    def get(self, key: Key) -> Row | None:
        """The row; None where there is none. Its key was among those loaded."""
        return self._kept.get(key)

    def add(self, row: Row) -> None:
        """There was no row with this key: it will be inserted."""
        key = self._key(row)
        self._kept[key] = self._new[key] = row

    def changed(self, row: Row) -> None:
        """The row with this key is another now, or the one that was got has changed: it will be written."""
        key = self._key(row)
        self._kept[key] = row
        (self._new if key in self._new else self._changed)[key] = row

    def forget(self) -> None:
        """Nothing is kept: the table may have changed."""
        self._kept.clear()
        self._new.clear()
        self._changed.clear()

    async def load(self, conn: Connection, keys: Iterable[Key]) -> None:
        """The rows with these keys are kept, as far as the table has them."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._kept]
        if not missing:
            return
        arrays = zip(*missing, strict=True) if isinstance(missing[0], tuple) else (missing,)
        for record in await conn.fetch(self._statements.load, *map(list, arrays)):
            row = self._row(*record)
            self._kept[self._key(row)] = row

    async def write(self, conn: Connection) -> None:
        """The table has every row that changed."""
        if self._new:
            columns = zip(*map(msgspec.structs.astuple, self._new.values()), strict=True)
            await conn.execute(self._statements.insert, *columns)
            self._new.clear()
        if self._changed:
            columns = zip(*map(self._changing, self._changed.values()), strict=True)
            await conn.execute(self._statements.update, *columns)
            self._changed.clear()
        if len(self._kept) > KEPT_MAX:
            self._kept.clear()


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


def joined(items: Iterable[object]) -> str:
    """A list as one text, for `string_to_array`: an array of arrays cannot be unnested into arrays."""
    return ",".join(map(str, items))
