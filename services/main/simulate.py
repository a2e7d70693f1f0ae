"""`muster simulate …`: files and logs are read here, and what the simulations say becomes documents."""

import asyncio
import gc
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from events.base import START, Event, JobId, Position, spelled
from events.job import JobSubmitted
from events.log.port import LogFault, Reader
from events.policy import JobOrder, PlacePolicy
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from runtime.fault import Fault
from runtime.logging import configure
from runtime.settings import ReaderSettings
from services.main.local import CLOCK
from services.main.parts import read_here, reading
from services.simulate.ahead import run_ahead
from services.simulate.engine import Simulation
from services.simulate.fault import BadFile
from services.simulate.fill import fill, read_sizes
from services.simulate.kueue import run_kueue
from services.simulate.picture import picture
from services.simulate.plan import run_plan
from services.simulate.replay import Pool, replay
from services.simulate.trace import read_trace
from services.simulate.typed import policy_of, queues_of

COLLECT_EVERY: Final = (50_000, 20, 50)  # allocations of the youngest, then of each older generation
__all__ = ["BadFile", "Instead", "Outcome", "log", "place", "trace", "workload"]

Watch = Callable[[int, int], None]  # told what is done, of how much


class Outcome(NamedTuple):
    """What a simulation gave."""

    document: dict[str, Any]
    simulation: Simulation
    seconds: float  # that it took

    def svg(self, title: str) -> str:
        """The picture of it."""
        lives = list(self.simulation.lives.values())
        capacity = sum(self.simulation.cluster.capacity.values())
        return picture(title, _summary(self.document), lives, self.simulation.samples, capacity)


def place(file: Path, pool: tuple[int, int], policy: str) -> dict[str, int]:
    """The document of `muster simulate place`. `pool`: nodes, GPUs of each. Raises `BadFile`."""
    with _opened(file) as text:
        sizes = read_sizes(text)
    return fill(sizes, Pool(*pool), PlacePolicy(policy))


def trace(file: Path, pool: tuple[int, int], how: tuple[str, str], watch: Watch) -> Outcome:
    """What became of a trace. `pool`: nodes, GPUs of each; `how`: order, backfill. Raises `BadFile`."""
    with _opened(file) as text:
        works = read_trace(text)
    return _timed(lambda: replay(works, Pool(*pool), order=JobOrder(how[0]), backfill=how[1], watch=watch))


def workload(body: Mapping[str, Any], seed: int, watch: Watch) -> Outcome:
    """What became of a workload as typed, in the one format or the other. Raises `BadFile`."""
    if "cohorts" in body:
        return _timed(lambda: run_kueue(body, watch))
    return _timed(lambda: run_plan(body, seed=seed, watch=watch))


class Instead(NamedTuple):
    """Documents as typed, that hold instead of the cluster's own; None: its own does."""

    queues: Mapping[str, Any] | None = None
    policy: Mapping[str, Any] | None = None


def log(data_dir: Path, at: int, runtime_default_s: int, instead: Instead) -> Outcome:
    """What becomes of the cluster whose log is found as `muster verify` finds it. `at`: position; 0: the end.

    Raises `Fault`, and `BadFile` for a document.
    """
    now = CLOCK.now()
    documents: list[Event] = []
    if instead.policy is not None:
        documents.append(policy_of(instead.policy, now))
    if instead.queues is not None:
        documents.append(queues_of(instead.queues, now))
    configure(process="simulate", level="error")
    settings = read_here(ReaderSettings, data_dir)

    async def work() -> tuple[Cluster, dict[JobId, datetime]]:
        async with reading(settings) as reader:
            return await folded(reader, at)

    try:
        cluster, submitted = asyncio.run(work())
    except LogFault as fault:
        raise Fault(fault.code, str(fault), fault.hint) from fault
    return _timed(lambda: run_ahead(cluster, submitted, runtime_default_s=runtime_default_s, instead=tuple(documents)))


async def folded(reader: Reader, at: int) -> tuple[Cluster, dict[JobId, datetime]]:
    """The fold as of a position (0: the end), and when each job in it was submitted. Raises `Fault` for one not there."""
    end = await reader.end()
    if at > end:
        raise Fault(
            "no_such_position", f"The log ends at {spelled(end)}, before {spelled(Position(at))}.", "See muster events."
        )
    cluster, submitted = Cluster(), dict[JobId, datetime]()
    async with aclosing(reader.follow(START)) as stretches:  # type: ignore[type-var]  # it is a generator
        async for stretch in stretches:
            for recorded in stretch:
                if recorded.position > (at or end):
                    break
                cluster = evolve(cluster, recorded)
                if isinstance(recorded.event, JobSubmitted):
                    submitted.setdefault(recorded.event.job_id, recorded.at)
            if stretch and stretch[-1].position >= (at or end):
                break
    if cluster.at is None:
        raise Fault("no_such_position", f"Nothing was in the log at {spelled(Position(at))}.", "")
    return cluster, submitted


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """The text of a file, unpacked where its name ends in `.gz`. Raises: `BadFile` for what cannot be read."""
    try:
        with file.open("rb") as raw:
            packed = gzip.GzipFile(fileobj=raw) if file.suffix == ".gz" else raw
            with TextIOWrapper(packed, "utf-8-sig", newline="") as text:
                yield text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadFile(0, f"not a whole gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise BadFile(0, f"not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise BadFile(0, f"cannot be read: {error.strerror or error}") from error


def _timed(work: Callable[[], tuple[Simulation, dict[str, Any]]]) -> Outcome:
    began_s = CLOCK.monotonic()
    with _seldom_collected():
        simulation, document = work()
    return Outcome(document, simulation, CLOCK.monotonic() - began_s)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Memory is looked through for cycles seldom: the fold is large and has none, as in a control plane."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT_EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _summary(document: dict[str, Any]) -> str:
    """The figures that stand below the title of a picture."""
    jobs = f"{document['jobs']:,} jobs"
    if "wait_mean_s" not in document:
        return f"{jobs} in {document['wall_ms']:,} ms, quota used {document['queue_usage_percent']} %"
    waits = ", ".join(f"{name} {_span(document[f'wait_{name}_s'])}" for name in ("mean", "p50", "p99"))
    return f"{jobs}, utilisation {document['utilisation']:.1%}, waits: {waits}"


def _span(seconds: float) -> str:
    """A span in the largest unit of which it has two: `36 h`, `5 d`."""
    size, unit = next(((s, u) for s, u in ((86_400, "d"), (3_600, "h"), (60, "min")) if seconds >= 2 * s), (1, "s"))
    return f"{seconds / size:,.0f} {unit}"
