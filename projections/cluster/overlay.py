"""Maps and indexes that can be forked: a fork costs what is changed in it, not what is in the state."""

from bisect import bisect_left, insort
from collections.abc import Iterator, MutableMapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Generic, TypeVar, cast, overload

from sortedcontainers import SortedDict

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_DELETED = object()
_ABSENT = object()


class Overlay(MutableMapping[K, V]):
    """A layer of changes over a map that stays as it is. The map below must not change while the layer is in use."""

    __slots__ = ("_below", "_changes", "_size")

    def __init__(self, below: MutableMapping[K, V]) -> None:
        self._below = below
        self._changes: dict[K, object] = {}
        self._size = len(below)

    def __getitem__(self, key: K) -> V:
        value = self._changes.get(key, _ABSENT)
        if value is _ABSENT:
            return self._below[key]
        if value is _DELETED:
            raise KeyError(key)
        return cast(V, value)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...
    def get(self, key: K, /, default: object = None) -> object:
        """As of any map, without an exception for what is not there."""
        value = self._changes.get(key, _ABSENT)
        if value is _ABSENT:
            return self._below.get(key, default)
        return default if value is _DELETED else value

    def __setitem__(self, key: K, value: V) -> None:
        before = self._changes.get(key, _ABSENT)  # spelled out here and below: whatever is tried on a fork ends here
        if before is _DELETED or (before is _ABSENT and key not in self._below):
            self._size += 1
        self._changes[key] = value

    def __delitem__(self, key: K) -> None:
        before = self._changes.get(key, _ABSENT)
        if before is _DELETED or (before is _ABSENT and key not in self._below):
            raise KeyError(key)
        self._changes[key] = _DELETED
        self._size -= 1

    def __contains__(self, key: object) -> bool:
        value = self._changes.get(key, _ABSENT)  # type: ignore[arg-type]  # any object may be asked for
        return key in self._below if value is _ABSENT else value is not _DELETED

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._below if key not in self._changes)
        yield from (key for key, value in self._changes.items() if value is not _DELETED)

    def __len__(self) -> int:
        return self._size


def fork_map(below: MutableMapping[K, V]) -> MutableMapping[K, V]:
    """A map that starts as `below` and can be changed without changing it."""
    return Overlay(below)


G = TypeVar("G")


class Lines(Generic[G, V]):
    """Ordered lines, one a group: entries of a group in the order of their keys. Groups without entries do not exist.

    Keys are tuples that can be compared; a key is in at most one group.
    """

    __slots__ = ("_below", "_came", "_gone")

    def __init__(self, below: "Lines[G, V] | None" = None) -> None:
        self._below = below
        self._came: dict[G, SortedDict[tuple[float, ...], V]] = {}
        self._gone: dict[G, set[tuple[float, ...]]] = {}

    def fork(self) -> "Lines[G, V]":
        """Lines that start as these and can be changed without changing them."""
        return Lines(self)

    def add(self, group: G, key: tuple[float, ...], value: V) -> None:
        """Put an entry into its line."""
        if (gone := self._gone.get(group)) is not None and key in gone:
            gone.discard(key)  # it is in the line below, unchanged: an entry's value follows from its key
            return
        if (line := self._came.get(group)) is None:
            line = self._came[group] = SortedDict()
        line[key] = value

    def remove(self, group: G, key: tuple[float, ...]) -> None:
        """Take an entry out of its line. Raises `KeyError` where there is none."""
        if (line := self._came.get(group)) is not None and key in line:
            del line[key]
            if not line:
                del self._came[group]
        elif self.has(group, key):
            self._gone.setdefault(group, set()).add(key)
        else:
            raise KeyError((group, key))

    def has(self, group: G, key: tuple[float, ...]) -> bool:
        """Whether the line of `group` has an entry with this key."""
        if (line := self._came.get(group)) is not None and key in line:
            return True
        if key in self._gone.get(group, ()):
            return False
        return self._below is not None and self._below.has(group, key)

    def groups(self) -> list[G]:
        """The groups that have entries; in no promised order."""
        if self._below is None:
            return list(self._came)
        below = [g for g in self._below.groups() if g not in self._came and self._has_any(g)]
        return [*self._came, *below]

    def _has_any(self, group: G) -> bool:
        """Whether the line below still has entries."""
        return group not in self._gone or next(self.line(group), None) is not None

    def line(self, group: G) -> Iterator[tuple[tuple[float, ...], V]]:
        """The entries of one group in order. Entries taken out of a fork meanwhile are left out, or were already given."""
        came = list(self._came[group].items()) if group in self._came and self._below is not None else []
        if self._below is None:
            yield from self._came.get(group, {}).items()
            return
        index = 0
        for entry in self._below.line(group):
            while index < len(came) and came[index][0] < entry[0]:
                yield came[index]
                index += 1
            if entry[0] not in self._gone.get(group, ()):
                yield entry
        yield from came[index:]

    def until(self, group: G, moment: datetime) -> Iterator[V]:
        """What stands in a line by moments whose moment has come by then."""
        until_s = moment.timestamp()
        for key, value in self.line(group):
            if key[0] > until_s:
                return
            yield value

    def count_before(self, group: G, key: tuple[float, ...]) -> int:
        """How many entries of a group come before `key`."""
        came, gone = self._came.get(group), self._gone.get(group, ())
        own = (came.bisect_left(key) if came is not None else 0) - sum(entry < key for entry in gone)
        return own + (self._below.count_before(group, key) if self._below is not None else 0)

    def count(self, group: G) -> int:
        """How many entries a group has."""
        own = len(self._came.get(group, ())) - len(self._gone.get(group, ()))
        return own + (self._below.count(group) if self._below is not None else 0)


class Buckets(Generic[K]):
    """Node names in sorted buckets. A fork shares the buckets that neither it nor what it was forked from changes."""

    __slots__ = ("_lists", "_own")

    def __init__(self) -> None:
        self._lists: dict[K, list[str]] = {}
        self._own: set[K] = set()

    def fork(self) -> "Buckets[K]":
        """Buckets that start as these. Either can be changed without changing the other."""
        forked: Buckets[K] = Buckets()
        forked._lists = dict(self._lists)
        self._own.clear()  # they are the fork's too from now on
        return forked

    def add(self, key: K, name: str) -> None:
        """Put a name into a bucket."""
        insort(self._writable(key), name)

    def remove(self, key: K, name: str) -> None:
        """Take a name out of a bucket that has it."""
        names = self._writable(key)
        index = bisect_left(names, name)
        assert names[index] == name, (key, name)
        del names[index]
        if not names:
            del self._lists[key]
            self._own.discard(key)

    def without(self, names: AbstractSet[str]) -> "Buckets[K]":
        """Buckets that start as these, less some names: many at once."""
        left: Buckets[K] = Buckets()
        left._lists = {
            key: kept for key, bucket in self._lists.items() if (kept := [name for name in bucket if name not in names])
        }
        left._own = set(left._lists)
        return left

    def groups(self) -> list[K]:
        """The buckets that are not empty; in no promised order."""
        return list(self._lists)

    def names(self, key: K) -> list[str]:
        """The names in a bucket, sorted; not to be changed."""
        return self._lists.get(key, [])

    def _writable(self, key: K) -> list[str]:
        if key in self._own:
            return self._lists[key]
        names = self._lists[key] = list(self._lists.get(key, ()))
        self._own.add(key)
        return names
