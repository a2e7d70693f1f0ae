"""The digest of the log: each record's is made of the one before and all that the record says, so none can be changed."""

from datetime import datetime
from hashlib import sha256
from typing import Final

import msgspec

from events.base import START, Position, Recorded, Stretch, chapter_of, sequence_of
from events.codec import EPOCH

NOTHING: Final = bytes(32)  # before the first record

_MICROSECOND: Final = 1_000_000


class Chain(msgspec.Struct, frozen=True):
    """How far the log was read, and its digest up to there."""

    position: Position = START
    at: datetime = EPOCH  # of the last record
    digest: bytes = NOTHING
    size_bytes: int = 0  # of the documents in this chapter

    @property
    def records(self) -> int:
        """How many its chapter has so far."""
        return sequence_of(self.position)


def extended(chain: Chain, stretch: Stretch) -> Chain:
    """The chain up to the end of `stretch`, which follows it. Records that it has already are passed over."""
    position, at, digest, size = chain.position, chain.at, chain.digest, chain.size_bytes
    for recorded in stretch:
        if recorded.position <= position:
            continue
        assert follows(position, recorded), (position, recorded.position)
        if chapter_of(recorded.position) != chapter_of(position):
            size = 0
        # Times never go back, wherever reading began: a chain that goes on from one that was kept is the same.
        position, at = recorded.position, max(recorded.at, at)
        size += len(recorded.document)
        digest = sha256(
            b"%b%d %d %b\n%b" % (digest, position, _microseconds(at), recorded.subject.encode(), recorded.document)
        ).digest()
    return Chain(position, at, digest, size)


def follows(before: Position, recorded: Recorded) -> bool:
    """Whether a record is the next after a position: in the same chapter, or the first of the next one."""
    if chapter_of(recorded.position) == chapter_of(before):
        return recorded.position == before + 1
    return chapter_of(recorded.position) == chapter_of(before) + 1 and sequence_of(recorded.position) == 1


def _microseconds(at: datetime) -> int:
    delta = at - EPOCH
    return (delta.days * 86_400 + delta.seconds) * _MICROSECOND + delta.microseconds
