"""docs/events.md: every subject, family, event, ask, answer and desired state, with all fields and what they mean."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final, get_args

import msgspec

from events import base
from events.base import Event, Family
from events.codec import Document, type_of
from events.docs.channels import (
    BARE,
    CHANNELS,
    FAMILY_MODULES,
    PARAMETERS,
    STREAMS,
    WRITERS,
    families,
    family_subject_form,
    types_of,
)
from events.docs.source import Kind, default_of, names_of, parts_of, phrases, says, sentence, type_name
from events.subjects import JOB_NAME_RULE, NAME_RULE

TOP: Final = """\
# Events

Everything that crosses a process boundary in a cell: what happened, what is asked and reported, what nodes are told.
Written from the types by `make docs`; a test fails when this page is stale. The same for programs:
[asyncapi.json](asyncapi.json), and a JSON Schema of every message in [schemas/](schemas).

- [Subjects](#subjects): where each kind of message travels, who writes and who reads it
- [The envelope](#the-envelope): what every event has
"""

ENVELOPE: Final = """\
## The envelope

An event is one CloudEvents 1.0 JSON document in structured mode, with `Content-Type: application/cloudevents+json`. These
bytes are what the log stores. `type` is the event's name for ever; a type is accepted only on its family's subjects, and
only if the ids in `data` are the tokens of the subject. Unknown fields are ignored, missing ones have their default.

Times are RFC 3339 in UTC. What is measured or charged uses the time at which the server stored the record, made
non-decreasing by position, and not `time`.
"""


def markdown() -> str:
    """The page."""
    lines = [TOP.rstrip(), *_contents(), "", *_subjects(), *_streams(), *_envelope()]
    for family in families():
        lines += _family(family)
    lines += _bare()
    lines += _parts()
    return "\n".join(lines).rstrip() + "\n"


def _contents() -> Iterator[str]:
    for family in families():
        yield f"- [Family `{family.name}`](#family-{family.name}): {_events(len(types_of(family)))}"
    yield "- [Asks, reports, desired state](#asks-reports-desired-state): what travels without an envelope"
    yield "- [Parts](#parts): what fields are made of, and every code"


def _events(count: int) -> str:
    return f"{count} event{'s' if count > 1 else ''}"


def _subjects() -> Iterator[str]:
    yield from ("## Subjects", "", "In a subject stand:", "")
    yield from (f"- `{{{name}}}`: {said}" for name, said in PARAMETERS.items())
    yield from ("", f"Names of cells, nodes and teams are {NAME_RULE}; of jobs,", f"{JOB_NAME_RULE}.", "")
    yield from _table(
        ("Subject", "Carries", "Written by", "Read by", "Stream"),
        (
            (f"`{c.subject}`", c.says.splitlines()[0], c.written, c.read, f"`{c.stream.name}`" if c.stream else "none")
            for c in CHANNELS
        ),
    )


def _streams() -> Iterator[str]:
    yield from (
        "## Streams",
        "",
        "One replica each in an embedded server, three in a cluster. Ages are in nanoseconds.",
        "",
    )
    yield from _table(
        ("Stream", "Subjects", "Keeps", "Settings"),
        (
            (f"`{s.name}`", f"`{s.subjects}`", s.keeps, ", ".join(f"`{k}={v}`".lower() for k, v in s.settings.items()))
            for s in STREAMS
        ),
    )


def _envelope() -> Iterator[str]:
    yield from (ENVELOPE.rstrip(), "")
    carried = phrases(Event)
    said = {
        "specversion": "always `1.0`",
        "id": "unique within `source`",
        "source": "who wrote it, a URI reference",
        "subject": "the subject below `muster.<cell>.ev.`",
        "time": carried["at"],
        "datacontenttype": "always `application/json`",
        "dataschema": "the schema of the whole document",
        "correlationid": "the job that it is about",
        "causationid": "id of the event that led to it",
        "authid": carried["by"],
        "traceparent": carried["trace"],
    }
    rows = [
        ("`type`", "text", "`musterbook.<what>.<happened>.v<n>`"),
        *((f"`{name}`", "time" if name == "time" else "text", said[name]) for name in Document.__struct_fields__),
        ("`data`", "object", "the fields of the event, below"),
    ]
    yield from _table(("Attribute", "Type", "Meaning"), rows)


def _family(family: Family) -> Iterator[str]:
    yield from (f"## Family `{family.name}`", "", says(FAMILY_MODULES[family.name]), "")
    yield from (f"Subject: `{family_subject_form(family)}`. Written by {WRITERS[family.writer]}.", "")
    for cls in types_of(family):
        yield from (f"### {cls.__name__}", "", f"`{type_of(cls)}`", "", says(cls), "")
        yield from _fields(cls, without=Event.__struct_fields__)


def _fields(cls: type[msgspec.Struct], without: Iterable[str] = ()) -> Iterator[str]:
    said = phrases(cls)
    rows = [
        (f"`{f.name}`", _linked(f.type), f"`{default_of(f)}`" if not f.required else "", said.get(f.name, ""))
        for f in msgspec.structs.fields(cls)
        if f.name not in without
    ]
    if rows:
        yield from _table(("Field", "Type", "Default", "Meaning"), rows)


def _bare() -> Iterator[str]:
    yield from ("## Asks, reports, desired state", "")
    yield from ("Plain JSON without an envelope. Requests are answered on their reply subject.", "")
    for name, kind in BARE.items():
        for part in get_args(kind) or (kind,):
            yield from (f"### {part.__name__}", "", f"Schema: [{name}](schemas/{name}.json).{_tag(part)}", "")
            yield from (says(part), "")
            yield from _fields(part)


def _tag(cls: type[msgspec.Struct]) -> str:
    config = cls.__struct_config__
    return f' It says `"{config.tag_field}": "{config.tag}"`.' if config.tag_field else ""


def _parts() -> Iterator[str]:
    yield from ("## Parts", "", "Identities and numbers:", "")
    yield from (f"- `{name}`: {_cell(said)}" for name, said in names_of(base).items())
    yield ""
    for part in _all_parts():
        yield from (f"### {part.__name__}", "")
        if issubclass(part, Enum):
            yield from (sentence(part), "")
            said = phrases(part)
            yield from _table(("Value", "Meaning"), ((f"`{m.value}`", said.get(m.name, "")) for m in part))
            continue
        yield from (says(part), "")
        if part.__struct_config__.array_like:
            yield from ("An array, in this order.", "")
        yield from _fields(part)


def _all_parts() -> list[type[Any]]:
    """Structs and enums that fields are made of, and that have no section of their own above."""
    events = [cls for family in families() for cls in types_of(family)]
    bare = [part for kind in BARE.values() for part in get_args(kind) or (kind,)]
    found = dict.fromkeys(part for kind in (*events, *bare) for part in parts_of(kind))
    return [part for part in found if part not in events and part not in bare]


def _linked(kind: Kind) -> str:
    """A type's name, linked to its section where it has one."""
    name = type_name(kind)
    for part in parts_of(kind):
        name = name.replace(part.__name__, f"[{part.__name__}](#{part.__name__.lower()})")
    return name


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)
    yield ""


def _cell(text: str) -> str:
    """Text in which nothing is taken for a mark, except within backticks."""
    pieces = text.replace("|", "\\|").split("`")
    pieces[::2] = (piece.replace("<", "&lt;") for piece in pieces[::2])
    return "`".join(pieces)
