"""Positions across chapters: counted, and gone back by one, where a chapter ends as anywhere else."""

import pytest

from events.base import START, position_of
from events.log.between import before, chapter_ends, distance
from events.log.port import Broken
from tests.events.log.rigs import memory_rig, read_to, started


async def test_positions_are_counted_and_gone_back_by_one() -> None:
    """Whatever lies between them, in any chapter; and each chapter's end is known."""
    async with memory_rig() as rig:
        for n in range(3):
            await rig.log.record([started(f"j{n}-{k}") for k in range(n)] or [started("j")])
            await rig.roll()
        records = await read_to(rig.reader, await rig.reader.end())
        positions = [START, *(r.position for r in records)]

        for n, one in enumerate(positions):
            assert await before(rig.reader, one) == positions[max(n - 1, 0)]
            for m, other in enumerate(positions):
                assert await distance(rig.reader, one, other) == m - n
        last = {r.position >> 40: r.position for r in records}
        assert await chapter_ends(rig.reader, records[-1].position) == list(last.values())
        with pytest.raises(Broken):
            await before(rig.reader, position_of(9, 1))
