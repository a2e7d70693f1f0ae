"""What every event is made of: identities, positions, the `Event` base and `Recorded`, an event with its place."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, NamedTuple, NewType

import msgspec

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)  # "<job>-<attempt>"
TeamId = NewType("TeamId", str)
NodeId = NewType("NodeId", str)
GpuUuid = NewType("GpuUuid", str)
AccountId = NewType("AccountId", str)
AskId = NewType("AskId", str)  # of what an operator asks of an account: derived from its key
# The limits hold where bytes are read: a mask of no slots, or of negative ones, never gets in.
SLOTS_MAX: Final = 63  # of one node: the bits of a mask that is a signed number of 64
SlotMask = NewType("SlotMask", Annotated[int, msgspec.Meta(gt=0, le=(1 << SLOTS_MAX) - 1)])  # bit n is slot n
Position = NewType(
    "Position", Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
)  # chapter * 2**40 + sequence: sortable, from 0
NodeEpoch = NewType(
    "NodeEpoch", Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
)  # position of the node's `NodeJoined`
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # also in tables
Code = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]  # the same, where less than 0 means something
Seconds = Annotated[float, msgspec.Meta(gt=0, le=31_536_000)]  # a year at the most
Micro = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]  # micro-credits; less than 0 means something
MicroCount = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]  # micro-credits, GPU-microseconds
Moment = Annotated[datetime, msgspec.Meta(tz=True)]  # a time that says its zone

SEQUENCE_BITS: Final = 40
START: Final = Position(0)  # before the first record of the first chapter


def position_of(chapter: int, sequence: int) -> Position:
    """The position of a record: `chapter` from 1, `sequence` from 1 within it."""
    return Position((chapter << SEQUENCE_BITS) | sequence)


def chapter_of(position: Position) -> int:
    """The chapter that a position lies in; 0 for `START`."""
    return position >> SEQUENCE_BITS


def sequence_of(position: Position) -> int:
    """The place of a position within its chapter, from 1."""
    return position & ((1 << SEQUENCE_BITS) - 1)


def spelled(position: Position) -> str:
    """A position as sentences have it, and people type it: `1:27` is record 27 of chapter 1."""
    return f"{chapter_of(position)}:{sequence_of(position)}"


def run_id_of(job_id: JobId, attempt: int) -> RunId:
    """The id of a job's run: derived, so that deciding the same thing twice names the same run. `attempt` from 1."""
    return RunId(f"{job_id}-{attempt}")


def job_id_of(run_id: RunId) -> JobId:
    """The job that a run is an attempt of."""
    return JobId(run_id.rpartition("-")[0])


class Family(NamedTuple):
    """A kind of subject under `muster.<cell>.ev`: its name, the event fields that make its tokens, who may write it.

    The record that closes a chapter is beside it, on `muster.<cell>.chapter.<number>`: all below `ev` is in the open one.
    """

    name: str
    tokens: tuple[str, ...]
    writer: str  # "gate" or "control"


INTAKE: Final = Family("intake", ("team", "job_id"), "gate")
JOB: Final = Family("job", ("team", "job_id"), "control")
NODE: Final = Family("node", ("node_id",), "gate")
FLEET: Final = Family("fleet", ("node_id",), "control")
HEAD: Final = Family("head", (), "control")
POLICY: Final = Family("policy", (), "gate")
QUEUES: Final = Family("queues", (), "gate")
OPERATOR: Final = Family("operator", ("node_id",), "gate")
CREDIT: Final = Family("credit", ("account",), "control")
TELLER: Final = Family("teller", ("account", "ask_id"), "gate")
ACCOUNTS: Final = Family("accounts", (), "gate")
PRICES: Final = Family("prices", (), "gate")
PERIOD: Final = Family("period", (), "control")
ALARMS: Final = Family("alarms", (), "control")
CHAPTER: Final = Family("chapter", ("chapter",), "control")


class Event(msgspec.Struct, kw_only=True, frozen=True, gc=False, tag_field="type"):
    """Something that happened, in the past tense. Its tag is the CloudEvents `type`, the other fields its `data`.

    The three fields here travel as attributes of the CloudEvents envelope, not in `data`.
    """

    family: ClassVar[Family]

    at: Moment  # CloudEvents `time`: what the writer believed; measured and charged is `Recorded.at`
    by: str = ""  # CloudEvents `authid`: who asked, from the connection and the subject; empty for the control plane
    trace: str = ""  # CloudEvents `traceparent`


class StandingDocument(Event, kw_only=True, frozen=True):
    """A whole document on one literal subject. It is written only over the one that its writer saw, so edits never race."""

    replaces: Position | None = None  # of the one its writer saw; `START`: none was there; None: whatever is there


class Unreadable(Event, kw_only=True, frozen=True, tag="musterbook.unreadable"):
    """A record that this version cannot read: of an unknown type, malformed, or on a subject that is not its own.

    Never written. On a subject of the control plane it stops deciding; on the gate's it is skipped and reported.
    """

    subject: str
    named: str  # the type it names, if any
    reason: str


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event and its place in the log."""

    event: Event
    position: Position
    at: datetime  # when the server stored it, never less than at an earlier position
    id: str = ""  # the CloudEvents id
    subject: str = ""  # below `muster.<cell>.ev.`: "job.<team>.<job>"
    document: bytes = b""  # as stored: the CloudEvents JSON


Stretch = tuple[Recorded, ...]  # what one read of the log gave: consecutive; empty when 100 ms passed quietly
