"""The grammar of subjects and names: what is a legal id, and where each kind of message travels in a cell."""

import re
from typing import Final, NamedTuple

from events.base import Event, JobId, NodeId, RunId, TeamId

CELL_DEFAULT: Final = "main"
NAME_MAX: Final = 24  # characters of cell, node, team; an index entry holds every distinct subject in RAM
JOB_NAME_MAX: Final = 40
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")
JOB_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
NAME_RULE: Final = "1 to 24 of a-z, 0-9 and -, beginning and ending with a letter or digit"
JOB_NAME_RULE: Final = "1 to 40 of a-z, 0-9 and -, beginning and ending with a letter or digit"

LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
LABEL_RULE: Final = "1 to 63 letters, digits and . _ / -, the first a letter or digit"

DESIRED_STREAM: Final = "DESIRED"
HEARTBEATS_STREAM: Final = "HEARTBEATS"
LOGS_STREAM: Final = "LOGS"


def is_name(text: str) -> bool:
    """Whether `text` may be the name of a cell, a team or a node."""
    return NAME.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether `text` may be the name or the value of a label of a node, or a taint."""
    return LABEL.fullmatch(text) is not None


def is_job_name(text: str) -> bool:
    """Whether `text` may be the name that a user gives a job."""
    return JOB_NAME.fullmatch(text) is not None


def events_stream(chapter: int) -> str:
    """The stream that holds a chapter of the log, from 1."""
    return f"EVENTS_{chapter:04d}"


def family_subject(event: Event) -> str:
    """Where an event belongs, below `muster.<cell>.ev.`; made of its own ids."""
    family = event.family
    match family.tokens:  # spelled out: this is done twice for every event
        case (one, two):
            return f"{family.name}.{getattr(event, one)}.{getattr(event, two)}"
        case (one,):
            return f"{family.name}.{getattr(event, one)}"
        case _:
            return family.name


class Subjects(NamedTuple):
    """Every subject of one cell."""

    cell: str = CELL_DEFAULT

    @property
    def events_prefix(self) -> str:
        """Before the family of every event; ends with a dot."""
        return f"muster.{self.cell}.ev."

    def short(self, subject: str) -> str:
        """The subject of a record as `Recorded` has it."""
        return subject.removeprefix(self.events_prefix).removeprefix(f"muster.{self.cell}.")

    @property
    def head(self) -> str:
        """The control plane's own: the fence of its appends."""
        return f"muster.{self.cell}.ev.head"

    def closing(self, chapter: int) -> str:
        """Where the record is that closes a chapter, and nothing else: its stream listens there once it takes no more."""
        return f"muster.{self.cell}.chapter.{chapter}"

    @property
    def closings(self) -> str:
        """Where all chapters are closed."""
        return f"muster.{self.cell}.chapter.*"

    @property
    def moved(self) -> str:
        """A hint that the log has moved, after each commit."""
        return f"muster.{self.cell}.moved"

    @property
    def why(self) -> str:
        """Where control planes answer `WhyAsk`."""
        return f"muster.{self.cell}.why"

    @property
    def dry_run(self) -> str:
        """Where control planes answer `DryRunAsk`."""
        return f"muster.{self.cell}.dry_run"

    @property
    def entitled(self) -> str:
        """Where control planes answer `EntitledAsk`."""
        return f"muster.{self.cell}.entitled"

    @property
    def roll(self) -> str:
        """Where control planes answer `RollAsk`."""
        return f"muster.{self.cell}.roll"

    @property
    def asks(self) -> str:
        """Where the gate listens to all teams."""
        return f"muster.{self.cell}.ask.*"

    @property
    def operate(self) -> str:
        """Where the gate listens to operators."""
        return f"muster.{self.cell}.operate"

    @property
    def reports(self) -> str:
        """Where the gate listens to all nodes."""
        return f"muster.{self.cell}.report.*"

    @property
    def heartbeats(self) -> str:
        """Where the control plane listens to all nodes, and to its own beat."""
        return f"muster.{self.cell}.hb.*"

    def intake(self, team: TeamId, job_id: JobId) -> str:
        """The subject of what was asked of one job."""
        return f"muster.{self.cell}.ev.intake.{team}.{job_id}"

    def ask(self, team: TeamId) -> str:
        """Where a team asks."""
        return f"muster.{self.cell}.ask.{team}"

    def report(self, node_id: NodeId) -> str:
        """Where a node's agent reports."""
        return f"muster.{self.cell}.report.{node_id}"

    def heartbeat(self, name: str) -> str:
        """Where a node, or a control plane by its instance, beats."""
        return f"muster.{self.cell}.hb.{name}"

    def desired(self, node_id: NodeId) -> str:
        """The last value here is what the node should run."""
        return f"muster.{self.cell}.desired.{node_id}"

    def log(self, node_id: NodeId, job_id: JobId, run_id: RunId, rank: int) -> str:
        """Where the output of a rank goes."""
        return f"muster.{self.cell}.log.{node_id}.{job_id}.{run_id}.{rank}"


def last_token(subject: str) -> str:
    """The team of `ask.<team>`, the node of `report.<node>`: who speaks, as the server allowed it."""
    return subject.rpartition(".")[2]
