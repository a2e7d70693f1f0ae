"""Which events an endpoint wants: by type, with wildcards, and by team or account."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from events.base import CREDIT, INTAKE, JOB, TELLER, Event, Unreadable
from events.codec import TYPES, type_of

NAMES: Final = frozenset(type_of(cls) for cls in TYPES)
PATTERN: Final = re.compile(r"(\*|[a-z0-9_]+(\.[a-z0-9_]+)*(\.\*)?)")
ROOT: Final = "musterbook."
PATTERNS_MAX: Final = 64  # of each kind, in one endpoint
OF_JOBS: Final = (INTAKE, JOB)
OF_ACCOUNTS: Final = (CREDIT, TELLER)


class Wanted(msgspec.Struct, frozen=True):
    """What an endpoint wants: types that fit any of the patterns, of any of the teams or accounts.

    With teams or accounts, events of jobs are those of the teams, events of credits those of the accounts, and no other
    is wanted. With neither, all are.
    """

    types: tuple[str, ...]
    teams: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()

    def wants(self, event: Event) -> bool:
        """Whether the event is one of those. What this version cannot read is never wanted: it has no id to send."""
        if isinstance(event, Unreadable):
            return False
        name = type_of(type(event))
        return any(fits(pattern, name) for pattern in self.types) and self._of_theirs(event)

    def _of_theirs(self, event: Event) -> bool:
        if not self.teams and not self.accounts:
            return True
        if event.family in OF_JOBS:
            return getattr(event, "team", "") in self.teams
        return event.family in OF_ACCOUNTS and getattr(event, "account", "") in self.accounts


def fits(pattern: str, name: str) -> bool:
    """Whether a type is meant by a pattern: `*` at the end stands for all that may follow."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def spelled_out(patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns in full, each once: `job.placed` is `musterbook.job.placed.v1`, `job.*` is `musterbook.job.*`.

    Raises `ValueError` for one that no type fits.
    """
    return tuple(dict.fromkeys(map(_full, patterns)))


def _full(pattern: str) -> str:
    if len(pattern) > max(map(len, NAMES)) or not PATTERN.fullmatch(pattern):
        raise ValueError("a type is a name such as musterbook.job.placed.v1, or musterbook.job.* for all below it")
    full = pattern if pattern == "*" or pattern.startswith(ROOT) else ROOT + pattern
    if not full.endswith("*") and full not in NAMES and f"{full}.v1" in NAMES:
        full += ".v1"
    if not any(fits(full, name) for name in NAMES):
        raise ValueError(f"no type fits {pattern!r}")
    return full
