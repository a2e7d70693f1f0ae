"""Between events and the bytes of the log: CloudEvents 1.0 JSON in structured mode, one tagged union by `type`.

Source: CloudEvents specification 1.0.2, sections 3 (attributes) and JSON event format 3.1.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from events import (
    accounts,
    alarm,
    chapter,
    credit,
    fleet,
    gpu,
    head,
    job,
    node,
    operator,
    period,
    policy,
    prices,
    queues,
    teller,
)
from events.base import Event, Family, Moment, RunId, Unreadable, job_id_of
from events.subjects import family_subject

CONTENT_TYPE: Final = "application/cloudevents+json"
NUL: Final = b"\\u0000"  # perhaps: a backslash before it makes it harmless
EVENT_MAX_BYTES: Final = 1 << 20  # the server's max_payload, less nothing: the largest placement fits

AnyEvent = (
    job.JobSubmitted
    | job.JobCancelRequested
    | job.JobResumeAsked
    | job.JobRejected
    | job.JobAdmitted
    | job.AdmissionWithdrawn
    | job.JobHeld
    | job.JobPlaced
    | job.GpusEarmarked
    | job.EarmarkDropped
    | job.StartPromised
    | job.PromiseMoved
    | job.PromiseDropped
    | job.ConsolidationProposed
    | job.RunStarted
    | job.RunStopping
    | job.JobRequeued
    | job.JobSucceeded
    | job.JobFailed
    | job.JobCancelled
    | job.JobTimedOut
    | node.NodeJoined
    | node.NodeDescribed
    | node.GpusFoundClean
    | node.ShareStarted
    | node.ShareEnded
    | node.CheckpointSaved
    | node.GpusReleased
    | node.RanksUnkillable
    | gpu.GpuSignalled
    | gpu.GpuRecovered
    | gpu.GpuResetFailed
    | gpu.GpuJudged
    | gpu.GpuReturned
    | operator.NodeCordoned
    | operator.NodeUncordoned
    | operator.NodeDrainAsked
    | operator.NodeUndrainAsked
    | operator.MaintenancePlanned
    | operator.MaintenanceCancelled
    | operator.GpuReturnAsked
    | fleet.NodeSuspected
    | fleet.NodeRecovered
    | fleet.NodeLost
    | fleet.NodeClockJudged
    | fleet.NodeDrainBegun
    | fleet.NodeDrained
    | fleet.NodeDrainEnded
    | fleet.NodeRetired
    | alarm.AlarmRaised
    | alarm.AlarmCleared
    | head.LogFounded
    | head.LeadershipTaken
    | head.RoundDecided
    | chapter.ChapterOpened
    | chapter.ChapterClosed
    | policy.PolicySet
    | queues.QueuesSet
    | accounts.AccountsSet
    | prices.PricesSet
    | teller.GrantAsked
    | teller.AdjustmentAsked
    | credit.CreditGranted
    | credit.CreditAdjusted
    | credit.AskRefused
    | credit.CreditReserved
    | credit.CreditRenewed
    | credit.CreditsRunningOut
    | credit.CreditCommitted
    | credit.CreditRefunded
    | credit.UsageUncovered
    | credit.UsageRecorded
    | credit.AccountClosed
    | period.PeriodClosed
)
TYPES: Final[tuple[type[Event], ...]] = get_args(AnyEvent)

Lift = tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]
LIFTS: Final[Mapping[str, Lift]] = {}  # old type -> (next type, its data from the old data); none released yet

# What reading bytes may raise: JSON of any depth, and a lift that meets data its version never wrote.
ILLEGIBLE: Final = (
    msgspec.MsgspecError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


def _application_json() -> Literal["application/json"]:
    return "application/json"


class Document(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """The CloudEvents envelope. One subclass a type, with typed `data`."""

    specversion: Literal["1.0"]
    id: str
    source: str
    subject: str
    time: Moment
    # By a factory: written although it is the default.
    datacontenttype: Literal["application/json"] = msgspec.field(default_factory=_application_json)
    dataschema: str = ""
    correlationid: str = ""
    causationid: str = ""
    authid: str = ""
    traceparent: str = ""


class Stamp(NamedTuple):
    """What the envelope says beside the event: who wrote it, and because of which event."""

    id: str  # unique within the source
    source: str = "musterbook"  # URI reference
    cause: str = ""  # id of the event that led to it


def type_of(cls: type[Event]) -> str:
    """The CloudEvents type of an event class, for ever."""
    tag = cls.__struct_config__.tag
    assert isinstance(tag, str), cls
    return tag


class _Shape(NamedTuple):
    """How one event class becomes a document and back."""

    event: type[Event]
    document: type[Document]
    data: type[msgspec.Struct]
    names: tuple[str, ...]  # of the fields in `data`
    values: Callable[[Event], tuple[Any, ...]]
    dataschema: str


def _shape(cls: type[Event]) -> _Shape:
    envelope = set(Event.__struct_fields__)
    fields = [f for f in msgspec.structs.fields(cls) if f.name not in envelope]
    fields.sort(key=lambda f: not f.required)  # a base may have fields with defaults
    names = tuple(f.name for f in fields)
    data = msgspec.defstruct(
        f"{cls.__name__}Data",
        [_data_field(f) for f in fields],
        frozen=True,
    )
    document: type[Document] = msgspec.defstruct(  # type: ignore[assignment]  # a subclass of its base
        f"{cls.__name__}Document",
        [("data", data)],
        bases=(Document,),
        frozen=True,
        kw_only=True,
        tag=type_of(cls),
    )
    getter = attrgetter(*names) if len(names) > 1 else (lambda event: (getattr(event, names[0]),))
    return _Shape(cls, document, data, names, getter, f"/schemas/{type_of(cls)}.json")


def _data_field(field: msgspec.structs.FieldInfo) -> tuple[str, Any, Any]:
    if field.required:
        return field.encode_name, field.type, msgspec.field()
    if field.default is not msgspec.NODEFAULT:
        return field.encode_name, field.type, msgspec.field(default=field.default)
    return field.encode_name, field.type, msgspec.field(default_factory=field.default_factory)


class Codec:
    """Encodes events, and decodes them where they belong: a type only on its family's subjects, with its own ids."""

    def __init__(self, types: Iterable[type[Event]] = TYPES, lifts: Mapping[str, Lift] = LIFTS) -> None:
        self._shapes = {cls: _shape(cls) for cls in types}
        self._by_document = {shape.document: shape for shape in self._shapes.values()}
        self._by_type = {type_of(cls): shape for cls, shape in self._shapes.items()}
        self._lifts = lifts
        self._encoder = msgspec.json.Encoder()
        union: Any = None
        for shape in self._shapes.values():
            union = shape.document if union is None else union | shape.document
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(union)

    def documents(self) -> dict[str, type[Document]]:
        """The document class of every type: what JSON Schemas are made from."""
        return {name: shape.document for name, shape in self._by_type.items()}

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """The event as one CloudEvents JSON document."""
        shape = self._shapes[type(event)]
        return self._encoder.encode(
            shape.document(
                specversion="1.0",
                id=stamp.id,
                source=stamp.source,
                subject=family_subject(event),
                time=event.at.astimezone(UTC),
                dataschema=shape.dataschema,
                correlationid=correlation_of(event),
                causationid=stamp.cause,
                authid=event.by,
                traceparent=event.trace,
                data=shape.data(*shape.values(event)),  # type: ignore[call-arg]  # a field of every subclass
            )
        )

    def decode(self, subject: str, payload: bytes) -> tuple[Event, str]:
        """The event and its CloudEvents id. What cannot be read is `Unreadable`: nothing raises here.

        `subject` is where it was found, below `muster.<cell>.ev.`.
        """
        try:
            document = self._decoder.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._decode_lifted(subject, payload, str(error))
        if NUL in payload and _holds_nul(msgspec.to_builtins(document)):
            return self._unreadable(subject, payload, "a text in it holds the character U+0000"), ""
        shape = self._by_document[type(document)]
        data = document.data
        event = shape.event(
            at=document.time,
            by=document.authid,
            trace=document.traceparent,
            **{name: getattr(data, name) for name in shape.names},
        )
        return self._belonging(subject, event), document.id

    def _decode_lifted(self, subject: str, payload: bytes, reason: str) -> tuple[Event, str]:
        """An event of an older version, lifted step by step; `Unreadable` where no step is known."""
        try:
            raw = msgspec.json.decode(payload)
            named, identity = str(raw["type"]), str(raw["id"])
            if named not in self._lifts:
                raise ValueError(reason)
            while named in self._lifts:
                named, lift = self._lifts[named]
                raw = {**raw, "type": named, "data": lift(raw["data"])}
            return self.decode(subject, msgspec.json.encode(raw))[0], identity
        except ILLEGIBLE as error:
            return self._unreadable(subject, payload, str(error)), ""

    def _unreadable(self, subject: str, payload: bytes, reason: str) -> Unreadable:
        named = ""
        try:
            raw = msgspec.json.decode(payload)
            named = str(raw.get("type", "")) if isinstance(raw, dict) else ""
        except (msgspec.DecodeError, RecursionError):
            pass  # not even JSON, or too deep: the reason says so
        if named and named not in self._by_type:
            reason = f"no type {named!r} is known to this version"
        named = named.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return Unreadable(at=EPOCH, subject=subject, named=named[:200], reason=reason[:500])

    def _belonging(self, subject: str, event: Event) -> Event:
        home = family_subject(event)
        if home == subject and subject.count(".") == len(event.family.tokens):
            return event
        reason = f"belongs on {home!r} by its own ids"
        if home == subject:
            reason = f"its ids hold dots, so that {home!r} could be of others"
        return Unreadable(at=event.at, subject=subject, named=type_of(type(event)), reason=reason)


@cache
def vocabulary() -> str:
    """Tells versions apart that do not read the same: the types they know, with their fields and all values of these.

    Whoever keeps what was folded keeps this with it. A version that knew less has passed over what this one can read.
    """
    _, parts = msgspec.json.schema_components(Codec().documents().values())
    return blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=16).hexdigest()


def _holds_nul(value: object) -> bool:
    """Whether any text in it does: PostgreSQL, C and most terminals end there."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(part) for entry in value.items() for part in entry)
    return isinstance(value, list | tuple) and any(map(_holds_nul, value))


EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def family_of(subject: str, families: Iterable[Family]) -> Family | None:
    """The family that a subject below `muster.<cell>.ev.` belongs to, by its first token."""
    name = subject.partition(".")[0]
    return next((family for family in families if family.name == name), None)


def correlation_of(event: Event) -> str:
    """The job that an event is about, directly or through its run; empty for none."""
    job_id: str = getattr(event, "job_id", "")
    if job_id:
        return job_id
    run_id = RunId(getattr(event, "run_id", ""))
    return job_id_of(run_id) if run_id else ""
