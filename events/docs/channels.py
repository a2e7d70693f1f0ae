"""Where everything travels: each channel of a cell with its subject, what it carries, and who may write and read it."""

from typing import Any, Final, NamedTuple

from events import accounts, alarm, chapter, credit, fleet, head, job, node, operator, period, policy, prices, queues, teller
from events.ask import Answer, Ask, DryRun, DryRunAsk, Entitled, EntitledAsk, OperatorAsk, Report, RollAnswer, RollAsk, Why, WhyAsk
from events.base import CHAPTER, Event, Family
from events.codec import TYPES
from events.desired import Desired, Heartbeat
from events.docs.source import says
from events.log.streams import LEASE_STREAM, StreamSettings, wanted
from events.subjects import CELL_DEFAULT, DESIRED_STREAM, HEARTBEATS_STREAM, LOGS_STREAM, Subjects, events_stream

GATE_QUEUE: Final = "gate"

# What stands in a subject.
PARAMETERS: Final = {
    "cell": "A cluster that shares nothing with others",
    "team": "Who asks",
    "job_id": "A job: `j` and 13 characters, from its team and idempotency key",
    "node_id": "A node",
    "run_id": "An attempt of a job: `<job>-<attempt>`",
    "rank": "A process of the run, from 0",
    "account": "An account of credits",
    "ask_id": "What an operator asks of an account: `a` and 13 characters, from the account and the idempotency key",
    "name": "A node, or a control plane by its instance",
    "chapter": "A chapter of the log, from 1",
}


class Stream(NamedTuple):
    """A JetStream stream of a cell."""

    name: str
    subjects: str
    keeps: str
    settings: dict[str, Any]  # as the JetStream API names them, without the number of replicas


_KEEPS: Final = {
    events_stream(1): "everything, for ever: the first chapter of the log",
    HEARTBEATS_STREAM: "the last few beats of each node and control plane, in memory",
    DESIRED_STREAM: "the last desired state of each node",
    LOGS_STREAM: "the output of ranks; the oldest goes first",
    LEASE_STREAM: "who should try to lead: a hint, the key-value bucket of the control planes",
}


def _streams() -> dict[str, Stream]:
    configs = wanted(StreamSettings(cell="{cell}", replicas=3))
    told = {"name", "subjects", "num_replicas"}
    return {
        config["name"]: Stream(
            config["name"],
            ", ".join(config["subjects"]),
            _KEEPS[config["name"]],
            {key: value for key, value in config.items() if key not in told},
        )
        for config in configs
    }


_BY_NAME: Final = _streams()
STREAMS: Final = tuple(_BY_NAME.values())
EVENTS: Final = _BY_NAME[events_stream(1)]
HEARTBEATS: Final = _BY_NAME[HEARTBEATS_STREAM]
DESIRED: Final = _BY_NAME[DESIRED_STREAM]
LOGS: Final = _BY_NAME[LOGS_STREAM]


class Channel(NamedTuple):
    """A kind of subject. `carries` are events, or the one type of its messages; none: bytes."""

    name: str  # in the AsyncAPI document
    subject: str  # with {parameters}
    says: str
    written: str
    read: str
    carries: tuple[type[Event], ...] | Any
    schema: str = ""  # file name in docs/schemas/, for what is no event
    answer: str = ""  # the schema of the answer, where messages are requests
    queue: str = ""  # the queue group that shares its messages
    stream: Stream | None = None
    sends: bool = True  # whether Musterbook sends here; else it receives


FAMILY_MODULES: Final = {
    "intake": job,
    "job": job,
    "node": node,
    "fleet": fleet,
    "head": head,
    "policy": policy,
    "queues": queues,
    "operator": operator,
    "accounts": accounts,
    "prices": prices,
    "teller": teller,
    "credit": credit,
    "period": period,
    "alarms": alarm,
    "chapter": chapter,
}
WRITERS: Final = {"gate": "the gate", "control": "the control plane"}


def families() -> list[Family]:
    """All families, in the order of the types."""
    return list(dict.fromkeys(cls.family for cls in TYPES))


def types_of(family: Family) -> tuple[type[Event], ...]:
    """The event types of a family."""
    return tuple(cls for cls in TYPES if cls.family == family)


def family_subject_form(family: Family) -> str:
    """The subject of a family, with its tokens as parameters."""
    above = "muster.{cell}" if family is CHAPTER else "muster.{cell}.ev"  # the stream of a closed one listens only there
    return ".".join([above, family.name, *(f"{{{token}}}" for token in family.tokens)])


def _family_channel(family: Family) -> Channel:
    teams = ", and programs of that team" if "team" in family.tokens else ""
    return Channel(
        name=family.name,
        subject=family_subject_form(family),
        says=says(FAMILY_MODULES[family.name]),
        written=WRITERS[family.writer],
        read=f"control plane, gate, dispatcher, projector, verifiers{teams}",
        carries=types_of(family),
        stream=EVENTS,
    )


def _form(subject: str) -> str:
    """A subject of the default cell, as the form for every cell."""
    return subject.replace(f"muster.{CELL_DEFAULT}.", "muster.{cell}.").replace(".*", ".{}")


_S: Final = Subjects()
OTHERS: Final = (
    Channel(
        name="ask",
        subject=_form(_S.asks).format("{team}", cell="{cell}"),
        says="A team asks; the gate checks, writes and answers once it is in the log. Ask again when no answer came.",
        written="programs of that team",
        read="the gate",
        carries=Ask,
        schema="ask",
        answer="answer",
        queue=GATE_QUEUE,
        sends=False,
    ),
    Channel(
        name="operate",
        subject=_form(_S.operate),
        says=(
            "An operator sets queues, policy, accounts or prices, asks something of an account, or cordons nodes; the gate "
            "answers once it is in the log."
        ),
        written="operators",
        read="the gate",
        carries=OperatorAsk,
        schema="operator_ask",
        answer="answer",
        queue=GATE_QUEUE,
        sends=False,
    ),
    Channel(
        name="report",
        subject=_form(_S.reports).format("{node_id}", cell="{cell}"),
        says="An agent says what it saw; the gate writes it as facts and answers once they are in the log.",
        written="the agent of that node",
        read="the gate",
        carries=Report,
        schema="report",
        answer="answer",
        queue=GATE_QUEUE,
        sends=False,
    ),
    Channel(
        name="heartbeat",
        subject=_form(_S.heartbeats).format("{name}", cell="{cell}"),
        says="An agent, or a control plane, is there.",
        written="the agent of that node; control planes, each for itself",
        read="the control plane",
        carries=Heartbeat,
        schema="heartbeat",
        stream=HEARTBEATS,
        sends=False,
    ),
    Channel(
        name="desired",
        subject="muster.{cell}.desired.{node_id}",
        says="What a node should run. The last message counts: a subscription is a hint, a direct get of it the truth.",
        written="the dispatcher",
        read="the agent of that node",
        carries=Desired,
        schema="desired",
        stream=DESIRED,
    ),
    Channel(
        name="log",
        subject="muster.{cell}.log.{node_id}.{job_id}.{run_id}.{rank}",
        says="The output of a rank, as bytes.",
        written="the agent of that node",
        read="gate and API",
        carries=None,
        stream=LOGS,
        sends=False,
    ),
    Channel(
        name="moved",
        subject=_form(_S.moved),
        says="The log has moved: the position after a commit. A hint to read on, never more.",
        written="the control plane, the gate",
        read="whoever follows the log",
        carries=None,
    ),
    Channel(
        name="why",
        subject=_form(_S.why),
        says="Why a job waits, or what became of it. Any control plane answers from its fold and says its position.",
        written="the gate and the API",
        read="control planes",
        carries=WhyAsk,
        schema="why_ask",
        answer="why",
        queue="why",
        sends=False,
    ),
    Channel(
        name="dry_run",
        subject=_form(_S.dry_run),
        says="What would become of a job. Any control plane answers: its deciders run on a fork of its fold.",
        written="the API",
        read="control planes",
        carries=DryRunAsk,
        schema="dry_run_ask",
        answer="dry_run",
        queue="dry_run",
        sends=False,
    ),
    Channel(
        name="entitled",
        subject=_form(_S.entitled),
        says="What each queue may claim now. Any control plane answers from its fold and says its position.",
        written="the API",
        read="control planes",
        carries=EntitledAsk,
        schema="entitled_ask",
        answer="entitled",
        queue="entitled",
        sends=False,
    ),
    Channel(
        name="roll",
        subject=_form(_S.roll),
        says="An operator goes on in another chapter of the log. A control plane closes this one and answers when the next is open.",
        written="the API",
        read="control planes",
        carries=RollAsk,
        schema="roll_ask",
        answer="roll_answer",
        queue="roll",
        sends=False,
    ),
)

CHANNELS: Final = (*(_family_channel(family) for family in families()), *OTHERS)

# Types that travel as they are, without an envelope, by the name of their schema.
BARE: Final[dict[str, Any]] = {
    "ask": Ask,
    "operator_ask": OperatorAsk,
    "report": Report,
    "answer": Answer,
    "desired": Desired,
    "heartbeat": Heartbeat,
    "why_ask": WhyAsk,
    "why": Why,
    "dry_run_ask": DryRunAsk,
    "dry_run": DryRun,
    "entitled_ask": EntitledAsk,
    "entitled": Entitled,
    "roll_ask": RollAsk,
    "roll_answer": RollAnswer,
}
