"""A replay of a trace that knows nothing of ours: counts of free GPUs a node, a list of what waits, plain rules."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple


class Asked(NamedTuple):
    """A job of a trace."""

    submit_s: int
    gpus: int
    runtime_s: int


class Nodes:
    """Free GPUs of nodes that are alike."""

    def __init__(self, nodes: int, size: int) -> None:
        self.size = size
        self.free = [size] * nodes

    def take(self, gpus: int) -> list[tuple[int, int]] | None:
        """A job of 8 or less goes to the fullest node that holds it; a larger one takes whole nodes, its rest likewise."""
        whole, rest = divmod(gpus, self.size) if gpus > self.size else (0, gpus)
        empty = [n for n, free in enumerate(self.free) if free == self.size][:whole]
        if len(empty) < whole:
            return None
        taken = [(n, self.size) for n in empty]
        if rest:
            holding = [(free, n) for n, free in enumerate(self.free) if free >= rest and n not in empty]
            if not holding:
                return None
            taken.append((min(holding)[1], rest))
        for n, count in taken:
            self.free[n] -= count
        return taken


def starts(jobs: list[Asked], nodes: int, size: int, key: Callable[[Asked, int], tuple[int, ...]]) -> list[int]:
    """When each job starts, where the first that cannot holds up all behind it. `key`: the order, of a job and its number."""
    room, begun = Nodes(nodes, size), [0] * len(jobs)
    ends: list[tuple[int, int, list[tuple[int, int]]]] = []
    waiting: list[tuple[tuple[int, ...], int]] = []
    arriving = 0
    while arriving < len(jobs) or ends:
        now = min([job.submit_s for job in jobs[arriving : arriving + 1]] + [end for end, _, _ in ends[:1]])
        while ends and ends[0][0] == now:
            for n, count in heappop(ends)[2]:
                room.free[n] += count
        while arriving < len(jobs) and jobs[arriving].submit_s == now:
            heappush(waiting, (key(jobs[arriving], arriving), arriving))
            arriving += 1
        while waiting and (taken := room.take(jobs[waiting[0][1]].gpus)) is not None:
            number = heappop(waiting)[1]
            begun[number] = now
            heappush(ends, (now + jobs[number].runtime_s, number, taken))
    return begun
