"""One world from its seed to its end: faults for a while, then rest, then everything must be as it should."""

import asyncio
import gc
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import structlog

from tests.sim.clock import no_real_time
from tests.sim.faults import Faults
from tests.sim.rest import rest
from tests.sim.trace import Broke
from tests.sim.world import World


class Outcome(NamedTuple):
    """What became of a world."""

    seed: int
    digest: str  # of all that happened
    records: int
    virtual_s: float
    steps: int
    law: str  # that was broken; empty: none
    message: str
    last: tuple[str, ...]
    counts: dict[str, int]
    faults: str


def run(seed: int, *, until_s: float | None = None, kept: int = 40, watch: bool = False) -> Outcome:
    """The world of a seed. The same seed gives the same world, to the last line."""
    config = structlog.get_config()
    with tempfile.TemporaryDirectory(prefix="sim-", dir=_fast()) as folder, no_real_time():
        world = World(seed, Path(folder))
        world.trace.keep(kept, watch=watch)
        world.trace.configure_logging()
        faults = Faults(world)
        asyncio.set_event_loop(world.loop)
        try:
            broken = _live(world, faults, until_s)
        finally:
            structlog.configure(**config)
            asyncio.set_event_loop(None)
            _bury(world)
    return Outcome(
        seed=seed,
        digest=world.trace.digest,
        records=world.checker.steps,
        virtual_s=world.loop.time(),
        steps=world.loop.steps,
        law=broken.law if broken else "",
        message=broken.message if broken else "",
        last=tuple(world.trace.last),
        counts=dict(world.trace.counts),
        faults=str(faults),
    )


def _live(world: World, faults: Faults, until_s: float | None) -> Broke | None:
    try:
        world.begin()
        faults.begin()
        world.run_until(min(faults.end_s, until_s or faults.end_s))
        if until_s is None or until_s > faults.end_s:
            faults.end()
            rest(world, until_s)
    except Broke as broken:
        return broken
    return None


def _bury(world: World) -> None:
    """Nothing of it is left, and nothing that its end says counts."""
    world.loop.failed = lambda _what, _error: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world.loop.drain()
        world.loop.close()
        gc.collect()


def _fast() -> str | None:
    shared = Path("/dev/shm")  # what agents write is read again at once
    return str(shared) if shared.is_dir() else None
