"""The documents say what the types say: fresh, complete, valid, and true of the bytes that are really written."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry

from events.base import CHAPTER, Event
from events.codec import TYPES, Codec, type_of
from events.docs.__main__ import FOLDER, documents, main, stale, write
from events.docs.asyncapi import asyncapi
from events.docs.channels import BARE, CHANNELS, STREAMS, families
from events.docs.markdown import markdown
from events.docs.schemas import schemas
from events.docs.source import parts_of, phrases
from events.job import HoldCode, JobPlaced, NodeShare
from events.subjects import Subjects, family_subject
from tests.events.drawn import structs, values
from tests.events.examples import EXAMPLES, STAMP

CODEC = Codec()
SCHEMAS = schemas(TYPES)
PAGE = markdown()
ASYNCAPI = asyncapi()
GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.json"))


def _valid(name: str, value: Any) -> bool:
    return bool(Draft202012Validator(SCHEMAS[name], registry=Registry()).is_valid(value))


def test_the_documents_are_fresh() -> None:
    """`make docs` writes them anew; what is no document of ours any more is gone."""
    assert stale(FOLDER) == []
    assert main(["--check"]) == 0


def test_what_is_stale_is_found_and_mended(tmp_path: Path) -> None:
    """Missing, changed and left-over documents; a second time there is nothing to do."""
    assert {*write(tmp_path)} == documents().keys()
    (tmp_path / "events.md").write_text("old")
    (tmp_path / "schemas" / "ask.json").unlink()
    (tmp_path / "schemas" / "musterbook.gone.v1.json").write_text("{}")

    changed = [Path("events.md"), Path("schemas/ask.json"), Path("schemas/musterbook.gone.v1.json")]
    assert stale(tmp_path) == changed
    assert write(tmp_path) == changed
    assert stale(tmp_path) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid(name: str) -> None:
    """By the dialect that they say they are of; and every reference leads somewhere."""
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)

    assert schema["$id"] == f"/schemas/{name}.json"
    for reference in _references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_bytes_fit_their_schema(path: Path) -> None:
    """The schema that the document itself names."""
    document = json.loads(path.read_bytes())

    assert _valid(document["dataschema"].removeprefix("/schemas/").removesuffix(".json"), document)


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
@settings(max_examples=10)
@given(data=st.data())
def test_whatever_is_written_fits_its_schema(cls: type[Event], data: st.DataObject) -> None:
    """Every event that the types allow, and none of another type."""
    document = json.loads(CODEC.encode(data.draw(structs(cls)), STAMP))

    assert _valid(type_of(cls), document)
    assert not _valid(type_of(cls), {**document, "type": "musterbook.other.v1"})


@pytest.mark.parametrize("name", ["answer", "desired", "heartbeat", "why_ask", "why"])
@settings(max_examples=25)
@given(data=st.data())
def test_what_travels_bare_fits_its_schema(name: str, data: st.DataObject) -> None:
    """Answers, desired states, heartbeats."""
    assert _valid(name, json.loads(msgspec.json.encode(data.draw(values(BARE[name])))))


def test_schemas_refuse_what_the_codec_refuses() -> None:
    """A missing attribute, a missing field, a mask of no slots."""
    document = json.loads(CODEC.encode(next(e for e in EXAMPLES if isinstance(e, JobPlaced)), STAMP))

    assert not _valid("musterbook.job.placed.v1", {**document, "data": {}})
    assert not _valid("musterbook.job.placed.v1", {k: v for k, v in document.items() if k != "id"})
    document["data"]["shares"][0][2] = 0
    assert not _valid("musterbook.job.placed.v1", document)


def test_the_page_names_everything() -> None:
    """Every type, field, code, subject and stream can be found on it."""
    for cls in TYPES:
        assert f"### {cls.__name__}\n\n`{type_of(cls)}`" in PAGE
    for part in {part for kind in (*TYPES, *BARE.values()) for part in parts_of(kind)}:
        section = PAGE.partition(f"### {part.__name__}\n")[2].partition("\n### ")[0]
        fields = (
            [f.name for f in msgspec.structs.fields(part) if part not in TYPES or f.name not in Event.__struct_fields__]
            if issubclass(part, msgspec.Struct)
            else [member.value for member in part]  # type: ignore[attr-defined]  # an enum
        )
        assert [name for name in fields if f"| `{name}` |" not in section] == [], part
    for channel in CHANNELS:
        assert f"| `{channel.subject}` |" in PAGE
    for stream in STREAMS:
        assert f"| `{stream.name}` |" in PAGE


def test_the_page_links_only_to_what_is_there() -> None:
    """Every link within the page has its heading, every file is a document of ours."""
    headings = {
        re.sub(r"[^a-z0-9 _-]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", PAGE, re.M)
    }
    links = set(re.findall(r"\]\(([^)]+)\)", PAGE))

    assert {link[1:] for link in links if link.startswith("#")} <= headings
    files = {Path(link) for link in links if not link.startswith("#")}
    assert files - {Path("schemas")} <= documents().keys()


def test_phrases_behind_fields_are_taken_over() -> None:
    """A unit or range is said once, in the source, and read by people and programs."""
    assert phrases(NodeShare)["slots"] == "bit n is slot n; never 0"
    assert phrases(HoldCode)["NO_ROOM"] == "fits the cluster, not what is free now"
    assert "| `slots` | SlotMask |  | bit n is slot n; never 0 |" in PAGE
    share = SCHEMAS["musterbook.job.placed.v1"]["$defs"]["NodeShare"]["prefixItems"][2]
    assert (share["title"], share["description"]) == ("slots", "bit n is slot n; never 0")
    assert "- `no_room`: fits" in SCHEMAS["musterbook.job.held.v1"]["$defs"]["HoldCode"]["description"]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_has_a_channel_that_its_subject_fits(event: Event) -> None:
    """With the tokens of its family as parameters."""
    (channel,) = [c for c in CHANNELS if isinstance(c.carries, tuple) and type(event) in c.carries]
    tokens = {name: getattr(event, name) for name in event.family.tokens}

    assert Subjects("main").short(channel.subject.format(cell="main", **tokens)) == family_subject(event)
    assert channel.subject.startswith("muster.{cell}.ev.") == (event.family is not CHAPTER)


def test_every_subject_of_a_cell_has_a_channel() -> None:
    """Whatever `Subjects` makes is described."""
    made = {
        re.sub(r"muster\.main\.(ev\.)?(\w+).*", r"\2", getattr(Subjects(), name) + ".x")
        for name in ("head", "moved", "why", "asks", "reports", "heartbeats")
    } | {"intake", "desired", "log"}
    described = {re.sub(r"muster\.\{cell\}\.(ev\.)?(\w+).*", r"\2", channel.subject + ".x") for channel in CHANNELS}

    assert made <= described
    assert {family.name for family in families()} <= described


def test_asyncapi_has_what_it_must_have() -> None:
    """The required fields of AsyncAPI 3.0, of the document and of each object in it."""
    assert ASYNCAPI["asyncapi"] == "3.0.0"
    assert ASYNCAPI["info"].keys() >= {"title", "version"}
    for server in ASYNCAPI["servers"].values():
        assert server.keys() >= {"host", "protocol"}
        assert set(re.findall(r"\{(\w+)\}", server["host"])) == server["variables"].keys()
    for name, channel in ASYNCAPI["channels"].items():
        assert re.fullmatch(r"[\w.-]+", name)
        assert set(re.findall(r"\{(\w+)\}", channel["address"] or "")) == channel.get("parameters", {}).keys()
        assert channel["messages"]
    for operation in ASYNCAPI["operations"].values():
        assert operation["action"] in {"send", "receive"}
        bindings = operation.get("bindings", {}).get("nats", {"queue": "", "bindingVersion": "0.1.0"})
        assert bindings.keys() == {"queue", "bindingVersion"}
        assert len(bindings["queue"]) <= 255
    for message in ASYNCAPI["components"]["messages"].values():
        assert message.keys() >= {"name", "title", "summary", "contentType", "payload"}


def test_asyncapi_references_lead_somewhere() -> None:
    """Within the document, and to the schemas beside it."""
    for reference in _references(ASYNCAPI):
        if reference.startswith("#"):
            _follow(ASYNCAPI, reference)
        else:
            assert Path(reference) in documents()


def test_asyncapi_operations_use_messages_of_their_channel() -> None:
    """The specification wants them referred to through the channel, also those of the answer."""
    for operation in ASYNCAPI["operations"].values():
        for part in (operation, operation.get("reply")):
            if part is None:
                continue
            channel = part["channel"]["$ref"]
            assert all(message["$ref"].startswith(f"{channel}/messages/") for message in part["messages"])


def test_asks_and_reports_are_shared_by_the_gates_and_answered() -> None:
    """A program that reads the document knows whom it asks and what comes back."""
    for name in ("receive_ask", "receive_report"):
        operation = ASYNCAPI["operations"][name]
        assert operation["bindings"]["nats"]["queue"] == "gate"
        assert operation["reply"]["channel"]["$ref"] == "#/channels/answer_inbox"


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _follow(document: Any, reference: str) -> Any:
    node = document
    for key in reference.removeprefix("#/").split("/"):
        node = node[key.replace("~1", "/").replace("~0", "~")]
        if isinstance(node, dict) and str(node.get("$ref", "")).startswith("#"):
            node = _follow(document, node["$ref"])
    return node
