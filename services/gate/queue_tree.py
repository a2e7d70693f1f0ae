"""The rules that a tree of queues keeps as a whole: names, parents, cycles, floors and limits; its one order; what is odd."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from events.queues import Bounds, Queue
from services.gate.changes import lines

NO_BOUNDS = Bounds()


class Typed(NamedTuple):
    """A queue, and where it stands in the document: `queues.0.children.1`."""

    place: str
    queue: Queue


class Problem(NamedTuple):
    """What is wrong at a place of the document, as the end of a sentence, and what was meant."""

    place: str
    told: str
    hint: str = ""


def problems_of(typed: Sequence[Typed], *, depth_max: int) -> list[Problem]:
    """Everything that keeps these queues from being a tree whose bounds can hold."""
    first: dict[str, Typed] = {}
    found: list[Problem] = []
    for place, queue in typed:
        earlier = first.setdefault(queue.name, Typed(place, queue))
        if earlier.place != place:
            told = f"{queue.name!r} is there twice; the other is {earlier.place}"
            found.append(Problem(f"{place}.name", told, "each team has one queue in the whole tree"))
    for place, queue in typed:
        found += _parent_problems(place, queue, first, depth_max)
        found += _bounds_problems(place, queue)
    return found


def ordered(queues: Sequence[Queue]) -> tuple[Queue, ...]:
    """The queues of a tree, each before its children, siblings by name: one order for each tree."""
    children: dict[str, list[Queue]] = {}
    for queue in sorted(queues, key=lambda queue: queue.name):
        children.setdefault(queue.parent, []).append(queue)
    out: list[Queue] = []
    pending = children.get("", [])[::-1]
    while pending:
        queue = pending.pop()
        out.append(queue)
        pending += children.get(queue.name, [])[::-1]
    assert len(out) == len(queues), "these queues are no tree"
    return tuple(out)


def oddities(queues: Sequence[Queue], before: Sequence[Queue]) -> list[str]:
    """What is legal in this tree and probably not meant: floors that cannot be had, teams that lose their queue."""
    by_name: dict[str, Queue] = {queue.name: queue for queue in queues}
    told = [
        f"queue {queue.name} goes: a job of that team stands at the root, with weight 1 and no bounds"
        for queue in before
        if queue.name not in by_name
    ]
    for queue in queues:
        for bounds in queue.bounds:
            told += _out_of_reach(queue, bounds, by_name)
        told += _overpromised(queue, [child for child in queues if child.parent == queue.name])
    return told


def beyond(queues: Sequence[Queue], capacity: Mapping[str, int]) -> list[str]:
    """What these queues promise and the cluster, by GPUs of each type, does not have. No nodes at all: nothing is said."""
    if not capacity:
        return []
    told: list[str] = []
    for gpu_type in ("", *sorted({bounds.gpu_type for queue in queues for bounds in queue.bounds} - {""})):
        users = ", ".join(queue.name for queue in queues if _bounds(queue, gpu_type) is not None)
        if gpu_type and gpu_type not in capacity:
            types = ", ".join(sorted(capacity))
            told.append(f"GPU type {gpu_type}, in the bounds of {users}, is on no node: the types are {types}")
            continue
        floors, there = _promised(queues, gpu_type), capacity[gpu_type] if gpu_type else sum(capacity.values())
        if floors > there:
            kind = f"{gpu_type} GPUs" if gpu_type else "GPUs"
            told.append(f"floors add up to {floors} {kind}, the cluster has {there}: each gets its part of that")
    return told


def _promised(queues: Sequence[Queue], gpu_type: str) -> int:
    """What floors add up to in a tree: of a queue its own, or those of its children where they are more."""
    below: dict[str, int] = {}
    for queue in reversed(queues):  # children come after their parents
        below[queue.parent] = below.get(queue.parent, 0) + max(_floors([queue], gpu_type), below.get(queue.name, 0))
    return below.get("", 0)


def changes(before: Sequence[Queue], after: Sequence[Queue]) -> list[str]:
    """What differs, a line a queue: `+` one that comes, `-` one that goes, `~` one that changes."""
    old, new = ({str(queue.name): _facts(queue) for queue in queues} for queues in (before, after))
    return lines(old, new, sorted(old.keys() | new.keys()))


def _facts(queue: Queue) -> dict[str, str]:
    """The fields of a queue that say something, by the names that people type."""
    facts = {"weight": str(queue.weight)} | ({"parent": queue.parent} if queue.parent else {})
    for bounds in queue.bounds:
        prefix = f"{bounds.gpu_type} " if bounds.gpu_type else ""
        named = {
            "floor": bounds.floor,
            "limit": bounds.limit,
            "borrowing_limit": bounds.borrowing_limit,
            "lending_limit": bounds.lending_limit,
        }
        facts |= {f"{prefix}{name}": str(value) for name, value in named.items() if value is not None}
    facts |= {"order": queue.order.value, "stop": queue.stop.value}
    counts = {"pending_max": queue.pending_max, "running_max": queue.running_max}
    return facts | {name: str(value) for name, value in counts.items() if value is not None}


def _parent_problems(place: str, queue: Queue, known: Mapping[str, Typed], depth_max: int) -> Iterator[Problem]:
    if queue.parent and queue.parent not in known:
        near = difflib.get_close_matches(queue.parent, sorted(known.keys() - {queue.name}), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"the queues are {', '.join(sorted(known)[:10])}"
        yield Problem(f"{place}.parent", f"there is no queue {queue.parent!r}", hint)
        return
    path = [str(queue.name)]
    while (above := known[path[-1]].queue.parent) and above in known:
        path.append(above)
        if above in path[:-1]:
            if above == queue.name:  # of a cycle only those that are in it, not those that hang from it
                yield Problem(f"{place}.parent", f"goes round in a circle: {' under '.join(path)}")
            return
    if len(path) > depth_max:
        yield Problem(f"{place}.parent", f"{queue.name!r} stands {len(path)} deep, {depth_max} is the most")


def _bounds_problems(place: str, queue: Queue) -> Iterator[Problem]:
    whole = _bounds(queue, "") or NO_BOUNDS
    for bounds in queue.bounds:
        at = f"{place}.gpu_types.{bounds.gpu_type}" if bounds.gpu_type else place
        if bounds.floor is not None and bounds.limit is not None and bounds.floor > bounds.limit:
            yield Problem(f"{at}.floor", f"is {bounds.floor}, more than the limit of {bounds.limit}", "raise the limit")
    floors = sum(bounds.floor or 0 for bounds in queue.bounds if bounds.gpu_type)
    if whole.limit is not None and floors > whole.limit:
        told = f"have floors of {floors} together, more than the limit of {whole.limit} over all types"
        yield Problem(f"{place}.gpu_types", told, "raise the limit")


def _bounds(queue: Queue, gpu_type: str) -> Bounds | None:
    return next((bounds for bounds in queue.bounds if bounds.gpu_type == gpu_type), None)


def _floors(queues: Sequence[Queue], gpu_type: str) -> int:
    """What the floors of siblings add up to, of a type; over all types: at least those of single types."""
    total = 0
    for queue in queues:
        if gpu_type:
            total += (_bounds(queue, gpu_type) or NO_BOUNDS).floor or 0
        else:
            single = sum(bounds.floor or 0 for bounds in queue.bounds if bounds.gpu_type)
            total += max((_bounds(queue, "") or NO_BOUNDS).floor or 0, single)
    return total


def _out_of_reach(queue: Queue, bounds: Bounds, by_name: Mapping[str, Queue]) -> Iterator[str]:
    """Limits above a queue that are below its floor."""
    above = by_name.get(queue.parent)
    while above is not None:
        limit = (_bounds(above, bounds.gpu_type) or NO_BOUNDS).limit
        if limit is not None and bounds.floor is not None and bounds.floor > limit:
            kind = f"{bounds.gpu_type} " if bounds.gpu_type else ""
            yield f"the {kind}floor of {queue.name} is {bounds.floor}, but {above.name} above it may have {limit} at the most"
        above = by_name.get(above.parent)


def _overpromised(queue: Queue, children: Sequence[Queue]) -> Iterator[str]:
    """Floors of children that add up to more than the floor of their parent."""
    for bounds in queue.bounds:
        floors = _floors(children, bounds.gpu_type)
        if bounds.floor is not None and floors > bounds.floor:
            kind = f"{bounds.gpu_type} " if bounds.gpu_type else ""
            yield f"the {kind}floors below {queue.name} add up to {floors}, its own is {bounds.floor}: beyond it they are not sure"
