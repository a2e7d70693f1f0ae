"""Hypothesis strategies for what `events` defines, made from its types, and for bytes that are nearly events."""

from datetime import UTC, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from events.base import AccountId, AskId, Event, JobId, NodeId, RunId, TeamId
from events.codec import TYPES, Codec, Stamp
from events.subjects import family_subject

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
moments = st.datetimes(timezones=st.just(UTC))
_IDS: dict[Any, st.SearchStrategy[Any]] = {
    AccountId: names,
    AskId: names,
    JobId: names,
    NodeId: names,
    RunId: st.builds(lambda job_id, attempt: f"{job_id}-{attempt}", names, st.integers(1, 99)),
    TeamId: names,
}
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: texts,
    datetime: moments,
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type as events use it: ids are legal names, times are in UTC, numbers are within their limits."""
    if kind in _IDS:
        return _IDS[kind]
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is NoneType:
        return st.none()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    return _made_of(kind)


def _made_of(kind: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return st.one_of([values(argument) for argument in arguments])
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=4).map(tuple)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=4)
    if origin is Annotated and arguments[0] is int:
        return _within(arguments[1])
    if origin is Annotated and arguments[0] is float:
        return st.floats(arguments[1].gt, arguments[1].le, exclude_min=True)
    if origin is Annotated:
        return values(arguments[0])
    raise AssertionError(f"no strategy for {kind!r}: say here how it is drawn")


def _within(limits: msgspec.Meta) -> st.SearchStrategy[int]:
    low = int(limits.ge) if limits.ge is not None else int(limits.gt or 0) + 1
    high = limits.le if limits.le is not None else 2**63 - 1 if limits.lt is None else limits.lt - 1
    return st.integers(low, int(high))


def structs(cls: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Instances of a struct with every field drawn."""
    return st.builds(cls, **{field.name: values(field.type) for field in msgspec.structs.fields(cls)})


events: st.SearchStrategy[Event] = st.one_of([structs(cls) for cls in TYPES])

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def nearly(draw: st.DrawFn) -> tuple[str, bytes]:
    """A subject, and the document of an event in which up to two values were replaced by other JSON, or left out."""
    event = draw(events)
    raw: dict[str, Any] = msgspec.json.decode(Codec().encode(event, Stamp("id")))
    for _ in range(draw(st.integers(0, 2))):
        part = raw["data"] if draw(st.booleans()) and isinstance(raw.get("data"), dict) and raw["data"] else raw
        name = draw(st.sampled_from(sorted(part)))
        if draw(st.booleans()):
            part[name] = draw(_json)
        else:
            del part[name]
    subject = draw(st.just(family_subject(event)) | st.lists(names, max_size=4).map(".".join))
    return subject, msgspec.json.encode(raw)
