"""A trace, replayed on a pool of nodes that are alike."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from events.base import NodeId
from events.policy import Consolidation, JobOrder, PolicySet
from services.simulate.engine import Simulation, Watch
from services.simulate.measure import figures
from services.simulate.work import Work

ALL: Final = (1 << 31) - 1  # as many as a policy can say
PROMISES: Final = {"none": 0, "easy": 1, "conservative": ALL}


class Pool(NamedTuple):
    """Nodes that are alike."""

    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.gpus_per_node


def replay(
    works: Sequence[Work],
    pool: Pool,
    *,
    order: JobOrder,
    backfill: str,
    watch: Watch | None = None,
) -> tuple[Simulation, dict[str, Any]]:
    """The simulation of a trace, as one team's and without preemption, and its figures.

    `backfill`: `none` lets no job pass one that cannot start, `easy` promises the first of those a start that jobs
    behind it may not delay, `conservative` all of them. Jobs larger than the pool are dropped.
    """
    simulation = Simulation()
    simulation.join(named(pool.nodes), pool.gpus_per_node)
    simulation.record(
        PolicySet(
            at=simulation.begin,
            order=order,
            blocking=backfill == "none",
            promises=PROMISES[backfill],
            preemption=False,
            consolidation=Consolidation.OFF,  # nobody reads what could be moved
            admitted_ahead=ALL,
        )
    )
    held = [work for work in works if work.spec.gpus <= pool.gpus]
    simulation.run(held, watch)
    measured = figures(list(simulation.lives.values()), simulation.samples, pool.gpus)
    measured["jobs"] = len(works)
    return simulation, {"jobs": len(works), "dropped": len(works) - len(held), **measured}


def named(nodes: int, prefix: str = "n") -> list[NodeId]:
    """Names of so many nodes, which sort as they are numbered."""
    width = len(str(max(nodes - 1, 0)))
    return [NodeId(f"{prefix}{number:0{width}}") for number in range(nodes)]
