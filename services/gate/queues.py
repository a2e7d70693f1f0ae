"""What operators type to divide the cluster among teams, checked field by field, and the `QueuesSet` that it means."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from events.ask import RefusalCode, Refused
from events.base import TeamId
from events.queues import Bounds, Queue, QueueOrder, QueuesSet, QueueStop
from services.gate.durations import COUNT_MAX
from services.gate.names import shown
from services.gate.names_typed import NameField
from services.gate.problems import refusal, refusal_of, wrong
from services.gate.queue_tree import Problem, Typed, changes, ordered, problems_of
from services.gate.shape import shaped
from services.gate.spec import GPU_TYPE

QUEUES_MAX: Final = 2_000
DEPTH_MAX: Final = 16  # queues above each other
BOUNDS: Final = ("floor", "limit", "borrowing_limit", "lending_limit")
EXAMPLE: Final = "for example  queues: [{name: research, weight: 3}, {name: sales, weight: 2}]"


def checked_queues(raw: object, at: datetime) -> QueuesSet | Refused:
    """The tree that `raw`, a mapping as typed, describes; or all that is wrong with it, each with its place.

    Two documents that mean the same tree give the same event, however they are written: nested or flat, in any order.
    """
    document = shaped(raw, "queues", "queues", EXAMPLE)
    if isinstance(document, Refused):
        return document
    problem = _tree_problem(document)
    if problem is not None:
        return problem
    try:
        typed = QueuesTyped.model_validate(document)
    except ValidationError as error:
        return refusal_of(error, QueuesTyped)
    entries = list(_entries(typed.queues, "queues", parent=None))
    found = [*_parent_problems(entries), *problems_of([entry.typed for entry in entries], depth_max=DEPTH_MAX)]
    if found:
        return refusal([(f"{one.place}: {one.told}", one.hint) for one in found])
    return QueuesSet(at=at, queues=ordered([entry.typed.queue for entry in entries]))


def queues_document(queues: QueuesSet | None) -> dict[str, Any]:
    """How such a document is typed: nested, with the fields that differ from their defaults. Read back, it is the same."""
    children: dict[str, list[Queue]] = {}
    for queue in queues.queues if queues else ():
        children.setdefault(queue.parent, []).append(queue)

    def document(queue: Queue) -> dict[str, Any]:
        told = _fields_of(queue)
        below = [document(child) for child in children.get(queue.name, [])]
        return told | {"children": below} if below else told

    return {"queues": [document(queue) for queue in children.get("", [])]}


def queues_changes(before: QueuesSet | None, after: QueuesSet) -> list[str]:
    """What differs, a line a queue."""
    return changes(before.queues if before else (), after.queues)


def _fields_of(queue: Queue) -> dict[str, Any]:
    told: dict[str, Any] = {"name": queue.name, "weight": queue.weight}
    by_type: dict[str, dict[str, int]] = {}
    for bounds in queue.bounds:
        given = {name: value for name in BOUNDS if (value := getattr(bounds, name)) is not None}
        if bounds.gpu_type:
            by_type[bounds.gpu_type] = given
        else:
            told |= given
    optional = {"pending_max": queue.pending_max, "running_max": queue.running_max}
    told |= {name: value for name, value in optional.items() if value is not None}
    if queue.order is not QueueOrder.BEST_EFFORT:
        told["order"] = queue.order.value
    if queue.stop is not QueueStop.NONE:
        told["stop"] = queue.stop.value
    return told | {"gpu_types": by_type} if by_type else told


def _count(value: object) -> object:
    """A whole number from 0, or none at all."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        digits = isinstance(value, str) and value.strip().isdigit()
        hint = f"write {str(value).strip()} without quotes" if digits else "leave it out where there is no such bound"
        raise wrong(f"must be a whole number, not {shown(value)}", hint)
    if value < 0:
        raise wrong(f"must be 0 or more, not {shown(value)}", "leave it out where there is no such bound")
    if value > COUNT_MAX:
        raise wrong(f"must be {COUNT_MAX} or less, not {shown(value)}")
    return value


def _weight(value: object) -> object:
    if isinstance(value, float):
        raise wrong(
            f"must be a whole number, not {shown(value)}", "weights count against each other: 3 and 7, not 0.3 and 0.7"
        )
    return value


def _list(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise wrong(f"must be a list of queues, not {shown(value)}", "each begins with a dash:  - name: research")
    return value


def _by_type(value: object) -> object:
    if not isinstance(value, dict):
        raise wrong(f"must be a mapping of GPU types to bounds, not {shown(value)}", "for example  h100: {floor: 32}")
    for name, bounds in value.items():
        if not isinstance(name, str) or not GPU_TYPE.fullmatch(name):
            raise wrong(f"has {shown(name)}; a GPU type is 1 to 40 letters, digits, spaces and . _ -")
        if not isinstance(bounds, dict):
            raise wrong(
                f"{name} is {shown(bounds)}, and must be a mapping of bounds", f"for example  {name}: {{floor: 32}}"
            )
    return value


def _none(value: object) -> object:
    return "none" if value is None or value is False else value  # `stop:` with nothing behind it; `stop: no`


CountField = Annotated[int | None, BeforeValidator(_count)]


class BoundsTyped(BaseModel):
    """What a queue has for sure and at the most, in GPUs. What is left out is no bound."""

    model_config = ConfigDict(strict=True, extra="forbid")

    floor: CountField = Field(None, description="Has this much whenever it wants it; left out: its weight's part.")
    limit: CountField = Field(None, description="Never more than this, itself and all below it.")
    borrowing_limit: CountField = Field(None, description="Never more than this beyond its floor.")
    lending_limit: CountField = Field(None, description="Of a floor it does not use, others get this much at the most.")


class QueueTyped(BoundsTyped):
    """One team, or a group of them."""

    name: NameField = Field(description="Of the team; 1 to 24 of a-z, 0-9 and -.")
    parent: str = Field("", description="The queue above it, where it does not stand among that one's children.")
    weight: Annotated[int, BeforeValidator(_weight), Field(ge=0, le=COUNT_MAX)] = Field(
        1, description="Its part among its siblings; 0: only what none of them wants."
    )
    gpu_types: Annotated[dict[str, BoundsTyped], BeforeValidator(_by_type)] = Field(
        {}, description="Bounds of single GPU types: h100: {floor: 32}."
    )
    order: QueueOrder = Field(
        QueueOrder.BEST_EFFORT, strict=False, description="Whether a job that may not run yet holds up those behind it."
    )
    stop: Annotated[QueueStop, BeforeValidator(_none)] = Field(
        QueueStop.NONE, strict=False, description="pause: nothing new starts; hold: what runs is stopped too."
    )
    pending_max: CountField = Field(None, description="Jobs that wait; one more is rejected.")
    running_max: CountField = Field(None, description="Jobs that have GPUs; one more waits.")
    children: Annotated[tuple["QueueTyped", ...], BeforeValidator(_list)] = Field(
        (), strict=False, description="The queues below it."
    )


class QueuesTyped(BaseModel):
    """The whole tree, as people describe it."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Queues")

    queues: Annotated[tuple[QueueTyped, ...], BeforeValidator(_list)] = Field(
        strict=False, description="Those at the root, or all of them with their parents; [] for none."
    )


class Entry(NamedTuple):
    """A queue as typed."""

    typed: Typed
    among: str | None  # the queue among whose children it stands; None: at the top of the document


def _entries(queues: tuple[QueueTyped, ...], place: str, *, parent: str | None) -> Iterator[Entry]:
    """Every queue of the document with its place, a parent before the children that it holds."""
    for number, typed in enumerate(queues):
        at = f"{place}.{number}"
        yield Entry(Typed(at, _queue(typed, typed.parent or parent or "")), parent)
        yield from _entries(typed.children, f"{at}.children", parent=typed.name)


def _queue(typed: QueueTyped, parent: str) -> Queue:
    pairs: list[tuple[str, BoundsTyped]] = [("", typed), *sorted(typed.gpu_types.items())]
    bounds = [
        Bounds(
            gpu_type=name,
            floor=given.floor,
            limit=given.limit,
            borrowing_limit=given.borrowing_limit,
            lending_limit=given.lending_limit,
        )
        for name, given in pairs
    ]
    return Queue(
        name=TeamId(typed.name),
        parent=parent,
        weight=typed.weight,
        bounds=tuple(one for one in bounds if one != Bounds(gpu_type=one.gpu_type)),
        order=typed.order,
        stop=typed.stop,
        pending_max=typed.pending_max,
        running_max=typed.running_max,
    )


def _parent_problems(entries: list[Entry]) -> Iterator[Problem]:
    for (place, queue), among in entries:
        if among is not None and queue.parent != among:
            told = f"is {queue.parent!r}, but {queue.name!r} stands among the children of {among!r}"
            yield Problem(f"{place}.parent", told, "leave parent out there, or move the queue")


def _tree_problem(raw: dict[str, Any]) -> Refused | None:
    """Why such a tree is not looked at any further: how much it is, how deep."""
    level, depth, number = _children(raw, "queues"), 0, 0
    while level:
        depth, number = depth + 1, number + len(level)
        if depth > DEPTH_MAX:
            message = f"queues: stand more than {DEPTH_MAX} above each other"
            return Refused(code=RefusalCode.INVALID, message=message)
        level = [child for queue in level for child in _children(queue, "children")]
    if number > QUEUES_MAX:
        message = f"queues: are {number}, {QUEUES_MAX} is the most"
        return Refused(code=RefusalCode.TOO_LARGE, message=message)
    return None


def _children(raw: object, field: str) -> list[object]:
    found = raw.get(field) if isinstance(raw, Mapping) else None
    return list(found) if isinstance(found, list | tuple) else []


def queues_schema() -> dict[str, Any]:
    """The JSON Schema of the document as typed, for editors and for the API's documents."""
    return QueuesTyped.model_json_schema()
