"""The codec: round trips, the CloudEvents form, what belongs where, and bytes that are no event."""

import re
from datetime import timedelta, timezone
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.base import JOB, NODE, Event, Family, JobId, NodeId, RunId, SlotMask, TeamId, Unreadable
from events.codec import CONTENT_TYPE, TYPES, Codec, Lift, Stamp, correlation_of, family_of, type_of
from events.job import JobAdmitted, JobPlaced, JobSpec, JobSubmitted
from events.node import GpusReleased
from events.subjects import family_subject
from tests.events.drawn import events, nearly, structs, texts
from tests.events.examples import EPOCH, EXAMPLES, OF_JOB, OF_NODE, RUN, STAMP

CODEC = Codec()
CORE_ATTRIBUTES = {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data"}
EXTENSIONS = {"correlationid", "causationid", "authid", "traceparent"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")


def _raw(event: Event) -> dict[str, Any]:
    return dict(msgspec.json.decode(CODEC.encode(event, STAMP)))


def _read(event: Event, raw: dict[str, Any]) -> Event:
    return CODEC.decode(family_subject(event), msgspec.json.encode(raw))[0]


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_is_read_back(cls: type[Event], data: st.DataObject) -> None:
    """Every event of every type comes back as it was, with its id."""
    event = data.draw(structs(cls))

    assert CODEC.decode(family_subject(event), CODEC.encode(event, Stamp("7"))) == (event, "7")


@given(event=events)
def test_bytes_are_a_cloudevents_document(event: Event) -> None:
    """Required attributes, names as the specification allows them, a time in UTC, and nothing beside."""
    raw = _raw(event)

    assert raw["specversion"] == "1.0"
    assert raw["type"] == type_of(type(event))
    assert all(isinstance(raw[name], str) and raw[name] for name in ("id", "source", "type", "subject"))
    assert raw["subject"] == family_subject(event)
    assert TIME.fullmatch(raw["time"])
    assert raw["datacontenttype"] == "application/json"
    assert raw["dataschema"] == f"/schemas/{raw['type']}.json"
    assert raw.keys() <= CORE_ATTRIBUTES | EXTENSIONS
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in raw)
    assert raw["data"].keys() == {f.name for f in msgspec.structs.fields(event)} - {"at", "by", "trace"}


def test_optional_attributes_are_left_out_when_empty() -> None:
    """CloudEvents forbids empty attribute values."""
    event = JobAdmitted(at=OF_JOB["at"], team=TeamId("vision"), job_id=JobId("j1"))

    assert not {"causationid", "authid", "traceparent"} & msgspec.json.decode(CODEC.encode(event, Stamp("1"))).keys()


def test_a_time_of_another_zone_is_written_in_utc() -> None:
    """The same moment has the same bytes wherever the writer stands."""
    there = OF_JOB["at"].astimezone(timezone(timedelta(hours=2)))

    assert _raw(JobAdmitted(**{**OF_JOB, "at": there})) == _raw(JobAdmitted(**OF_JOB))


def test_the_correlation_is_the_job() -> None:
    """Of an event that names a job, of one that names only a run, and of neither."""
    correlations = {type(event).__name__: correlation_of(event) for event in EXAMPLES}

    assert correlations["JobPlaced"] == correlations["ShareEnded"] == "jab2c3d4e5f6g7"
    assert correlations["NodeJoined"] == correlations["LogFounded"] == ""


def test_the_content_type_says_structured_mode() -> None:
    """What a receiver tells CloudEvents by."""
    assert CONTENT_TYPE == "application/cloudevents+json"


def test_types_are_names_for_ever() -> None:
    """One tag a class, of the form that the log's readers expect."""
    tags = [type_of(cls) for cls in TYPES]

    assert len(set(tags)) == len(tags)
    assert all(re.fullmatch(r"musterbook\.[a-z]+\.[a-z_]+\.v[1-9]\d*", tag) for tag in tags)


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_is_read_on_no_other_subject(event: Event) -> None:
    """Not on another family's, not with other ids, not longer or shorter: who and what come from the subject."""
    home = family_subject(event)
    others = {family_subject(other) for other in EXAMPLES} - {home}
    for elsewhere in {*others, home + "x", home + ".x", "x" + home, home.upper(), "", "*", ">"}:
        read, _ = CODEC.decode(elsewhere, CODEC.encode(event, STAMP))
        assert isinstance(read, Unreadable), elsewhere
        assert read.named == type_of(type(event))
        assert home in read.reason


@pytest.mark.parametrize(
    "event",
    [
        JobAdmitted(**{**OF_JOB, "team": TeamId("a.b")}),
        JobAdmitted(**{**OF_JOB, "team": TeamId("a"), "job_id": JobId("b.c")}),
        GpusReleased(**{**OF_NODE, "node_id": NodeId("n.1")}, node_epoch=EPOCH, run_id=RUN, slots=SlotMask(1)),
    ],
    ids=family_subject,
)
def test_ids_with_dots_are_refused_where_they_would_fit(event: Event) -> None:
    """`job.a.b.c` could be team a.b or job b.c: two events could claim one subject."""
    assert isinstance(_read(event, _raw(event)), Unreadable)


@pytest.mark.parametrize("name", ["specversion", "id", "source", "subject", "time", "type", "data"])
def test_a_document_without_a_required_attribute_is_unreadable(name: str) -> None:
    """Each is missed."""
    event = EXAMPLES[0]
    raw = _raw(event)
    del raw[name]

    read = _read(event, raw)

    assert isinstance(read, Unreadable)
    assert name in read.reason or name == "type"


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_a_missing_field_is_its_default_or_unreadable(event: Event) -> None:
    """Old bytes lack what was added later, so it has a default; nothing else may be missing."""
    for field in msgspec.structs.fields(event):
        raw = _raw(event)
        if raw["data"].pop(field.name, None) is None:
            continue
        read = _read(event, raw)
        if field.required:
            assert isinstance(read, Unreadable), field.name
            assert field.name in read.reason
        else:
            default = field.default_factory() if callable(field.default_factory) else field.default
            assert read == msgspec.structs.replace(event, **{field.name: default})


@given(event=events, name=texts, value=st.integers(0, 9) | texts)
def test_unknown_fields_and_attributes_are_ignored(event: Event, name: str, value: int | str) -> None:
    """What a newer writer added is nothing to an older reader."""
    raw = _raw(event)
    raw.setdefault(name, value)
    raw["data"].setdefault(name, value)

    assert name in raw["data"]
    known = {field.name for field in msgspec.structs.fields(event)}
    assert _read(event, raw) == event or name in known | CORE_ATTRIBUTES | EXTENSIONS


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("specversion",), "2.0"),
        (("datacontenttype",), "text/xml"),
        (("time",), "2026-03-14T15:09:26"),
        (("time",), "yesterday"),
        (("data",), [1, 2]),
        (("data", "attempt"), "2"),
        (("data", "shares"), [["rack1-n04", 1, 0]]),
        (("data", "shares"), [["rack1-n04", 1, -1]]),
        (("data", "shares"), [["rack1-n04", -1, 1]]),
        (("data", "shares"), [{"node_id": "rack1-n04", "node_epoch": 1, "slots": 1}]),
    ],
    ids=str,
)
def test_a_wrong_value_is_unreadable(path: tuple[str, ...], value: Any) -> None:
    """A type, a range or a time zone that does not hold is found where the bytes come in."""
    event = next(event for event in EXAMPLES if isinstance(event, JobPlaced))
    raw = _raw(event)
    part = raw if len(path) == 1 else raw[path[0]]
    part[path[-1]] = value

    assert isinstance(_read(event, raw), Unreadable)


def test_a_share_may_grow_at_its_end() -> None:
    """Shares are arrays: a field added later stands last and has a default, and is nothing to older readers."""
    event = next(event for event in EXAMPLES if isinstance(event, JobPlaced))
    raw = _raw(event)
    raw["data"]["shares"] = [[*share, "new"] for share in raw["data"]["shares"]]

    assert _read(event, raw) == event


def test_an_unknown_type_says_its_name() -> None:
    """A newer version wrote it: whoever reads the report can tell."""
    raw = {**_raw(EXAMPLES[0]), "type": "musterbook.job.praised.v1"}

    read = _read(EXAMPLES[0], raw)

    assert isinstance(read, Unreadable)
    assert read.named == "musterbook.job.praised.v1"
    assert "praised" in read.reason
    assert read.subject == family_subject(EXAMPLES[0])


def test_unreadable_is_never_written_nor_read() -> None:
    """It is this reader's word for what it met, no event of the log."""
    met = Unreadable(at=OF_JOB["at"], subject="head", named="", reason="")

    with pytest.raises(KeyError):
        CODEC.encode(met, STAMP)
    raw = {**_raw(EXAMPLES[0]), "type": "musterbook.unreadable"}
    assert isinstance(_read(EXAMPLES[0], raw), Unreadable)


@settings(max_examples=300)
@given(subject=st.text(max_size=60), payload=st.binary(max_size=200))
def test_no_bytes_raise(subject: str, payload: bytes) -> None:
    """An administrator can put anything onto the stream: it is unreadable, and nothing falls over."""
    assert isinstance(CODEC.decode(subject, payload)[0], Unreadable)


@settings(max_examples=300)
@given(found=nearly())
def test_no_document_raises(found: tuple[str, bytes]) -> None:
    """Nearly right ones neither; and what is read can be written, and is read the same."""
    event, _ = CODEC.decode(*found)

    if not isinstance(event, Unreadable):
        assert CODEC.decode(found[0], CODEC.encode(event, STAMP))[0] == event


HEAD = b'{"type":"musterbook.job.admitted.v1","specversion":"1.0","x":'


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 500_000,
        b'{"type":' * 50_000,
        HEAD + b"[" * 500_000,
        HEAD + b"9" * 400_000 + b"}",
        HEAD + b"1e999999}",
        HEAD + b'"\xff\xfe"}',
        HEAD + b'"\\ud800"}',
        b'{"type":["a"]}',
        b'{"type":"' + b"x" * 900_000 + b'"}',
        b"\xef\xbb\xbf{}",
        CODEC.encode(EXAMPLES[0], STAMP)[:-1],
        CODEC.encode(EXAMPLES[0], STAMP) * 2,
    ],
    ids=range(15),
)
def test_hostile_bytes_are_unreadable_and_reported_briefly(payload: bytes) -> None:
    """Too deep, too long, broken off, of another encoding: the report stays small."""
    read, identity = CODEC.decode(family_subject(EXAMPLES[0]), payload)

    assert isinstance(read, Unreadable)
    assert identity == ""
    assert len(read.named) <= 200
    assert len(read.reason) <= 500


def test_families_are_told_by_the_first_token() -> None:
    """Whether a record that cannot be read is the control plane's or the gate's."""
    assert family_of("job.vision.j1", (JOB, NODE)) is JOB
    assert family_of("node.n1", (JOB, NODE)) is NODE
    assert family_of("jobs.vision.j1", (JOB, NODE)) is None
    assert family_of("", (JOB, NODE)) is None


class LampLit(Event, kw_only=True, frozen=True, tag="test.lamp.lit.v3"):
    """A lamp was lit: the third form of this event."""

    family: ClassVar[Family] = Family("lamp", ("lamp_id",), "control")

    lamp_id: str
    watts: int
    colour: str = "white"


LIFTS: dict[str, Lift] = {
    "test.lamp.lit.v1": (
        "test.lamp.lit.v2",
        lambda data: {"lamp_id": data["lamp"].strip(), "kilowatts": data["kilowatts"]},
    ),
    "test.lamp.lit.v2": ("test.lamp.lit.v3", lambda data: {**data, "watts": data["kilowatts"] * 1000}),
}
LAMPS = Codec([LampLit], LIFTS)
LIT = LampLit(at=OF_JOB["at"], lamp_id="l1", watts=2000)


def _lamp(version: int, data: Any) -> bytes:
    raw = msgspec.json.decode(LAMPS.encode(LIT, Stamp("lamp-1")))
    return msgspec.json.encode({**raw, "type": f"test.lamp.lit.v{version}", "data": data})


def test_old_versions_are_lifted_step_by_step() -> None:
    """The first form passes through the second; the id stays."""
    assert LAMPS.decode("lamp.l1", _lamp(1, {"lamp": "l1", "kilowatts": 2})) == (LIT, "lamp-1")
    assert LAMPS.decode("lamp.l1", _lamp(2, {"lamp_id": "l1", "kilowatts": 2})) == (LIT, "lamp-1")
    assert LAMPS.decode("lamp.l1", _lamp(3, {"lamp_id": "l1", "watts": 2000})) == (LIT, "lamp-1")


def test_a_lifted_event_must_belong_too() -> None:
    """An old form is no way around the subject."""
    assert isinstance(LAMPS.decode("lamp.l2", _lamp(1, {"lamp": "l1", "kilowatts": 2}))[0], Unreadable)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        {},
        {"lamp": "l1"},
        {"lamp": 1, "kilowatts": 2},
        {"lamp": "l1", "kilowatts": "x"},
        {"lamp": "l1", "kilowatts": [2]},
    ],
)
def test_what_cannot_be_lifted_is_unreadable(data: Any) -> None:
    """A lift may meet data that its version never wrote."""
    assert isinstance(LAMPS.decode("lamp.l1", _lamp(1, data))[0], Unreadable)


@given(data=st.recursive(st.none() | st.integers(0, 2**63) | texts, lambda inner: st.dictionaries(texts, inner)))
def test_no_lift_raises(data: Any) -> None:
    """Whatever stands where the data should."""
    for version in (1, 2, 3):
        assert isinstance(LAMPS.decode("lamp.l1", _lamp(version, data))[0], Unreadable)


def test_run_ids_say_their_job() -> None:
    """A report names the run; its job is the correlation."""
    event = GpusReleased(**OF_NODE, node_epoch=EPOCH, run_id=RunId("jx-12"), slots=SlotMask(1))

    assert correlation_of(event) == "jx"


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ('"env":{"A":"b\\u0000"}', "U+0000"),
        ('"gpus":1099511627776', "2147483647"),
        ('"env":{"A":"\\ud800"}', "surrogate"),
    ],
)
def test_what_no_table_could_hold_is_unreadable(part: str, reason: str) -> None:
    """A text that ends in the middle, a number beyond a column: put there by hand, they stop no projector."""
    spec = JobSpec(name="a", command=("printf '\\u0000'",), gpus=1, env={"A": "b"})
    job = JobSubmitted(at=OF_JOB["at"], team=TeamId("t"), job_id=JobId("j1"), spec=spec, key="k", request_hash="h")
    payload = CODEC.encode(job, STAMP)
    assert CODEC.decode("intake.t.j1", payload)[0] == job  # the command only speaks of U+0000

    was = '"gpus":1' if "gpus" in part else '"env":{"A":"b"}'
    event, _ = CODEC.decode("intake.t.j1", payload.replace(was.encode(), part.encode()))

    assert isinstance(event, Unreadable)
    assert reason in event.reason
