"""JSON Schemas, draft 2020-12: one of every event type as a CloudEvents document, one of all else that is sent."""

from enum import Enum
from typing import Any, Final, get_args

import msgspec

from events.base import Event
from events.codec import Codec, Document, type_of
from events.docs.channels import BARE
from events.docs.source import Kind, parts_of, phrases, says

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def schemas(types: tuple[type[Event], ...]) -> dict[str, Schema]:
    """Every schema by the name of its file, without `.json`."""
    documents = Codec(types).documents()
    events = {type_of(cls): _event_schema(cls, documents[type_of(cls)]) for cls in types}
    return events | {name: _bare_schema(name, kind) for name, kind in BARE.items()}


def _event_schema(cls: type[Event], document: type[Document]) -> Schema:
    (_, definitions) = msgspec.json.schema_components([document], ref_template="#/$defs/{name}")
    envelope = definitions.pop(document.__name__)
    _describe(definitions, parts_of(cls))
    data = definitions.pop(f"{cls.__name__}Data")
    _describe_fields(data, cls)
    envelope["properties"]["data"] = data | {"title": f"Data of {cls.__name__}"}
    _describe_fields(envelope, Document)
    head = _head(type_of(cls), cls.__name__, says(cls))
    return head | {key: envelope[key] for key in ("type", "properties", "required")} | _defs(definitions)


def _bare_schema(name: str, kind: Kind) -> Schema:
    ((schema,), definitions) = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    _describe(definitions, parts_of(kind))
    titles = [part.__name__ for part in get_args(kind) or (kind,)]
    return _head(name, " or ".join(titles), "") | schema | _defs(definitions)


def _head(name: str, title: str, description: str) -> Schema:
    head = {"$schema": DIALECT, "$id": f"/schemas/{name}.json", "title": title}
    return head | ({"description": description} if description else {})


def _defs(definitions: Schema) -> Schema:
    return {"$defs": definitions} if definitions else {}


def _describe(definitions: Schema, parts: list[type]) -> None:
    """Each definition says what the source says of its type and fields."""
    for part in parts:
        definition = definitions.get(part.__name__)
        if definition is None:
            continue
        definition["description"] = says(part)
        if "properties" in definition:
            _describe_fields(definition, part)
        elif "prefixItems" in definition:
            for field, item in zip(msgspec.structs.fields(part), definition["prefixItems"], strict=True):
                item.update({"title": field.name} | _phrase(part, field.name))
        elif issubclass(part, Enum) and phrases(part):
            said = phrases(part)
            members = [f"- `{value}`: {said[name]}" for name, value in _members(part) if name in said]
            definition["description"] += "\n\n" + "\n".join(members)


def _members(part: type[Enum]) -> list[tuple[str, str]]:
    return [(member.name, member.value) for member in part]


def _describe_fields(schema: Schema, cls: type) -> None:
    for name, field in schema["properties"].items():
        field.update(_phrase(cls, name))


def _phrase(cls: type, name: str) -> Schema:
    said = phrases(cls).get(name)
    return {"description": said} if said else {}
