"""What people type to describe a job, checked field by field, and the `JobSpec` that it means."""

import hashlib
import re
import shlex
from typing import Annotated, Any, Final

import msgspec
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from events.ask import RefusalCode, Refused
from events.base import TeamId
from events.job import Checkpoint, JobSpec, OnLost, Priority, Ranks
from services.gate.names import job_name_problem, near_name, shown
from services.gate.names_typed import name_typed
from services.gate.nodes_typed import LabelsField, TaintsField, TopologyField, min_gpus_problem
from services.gate.problems import refusal_of, wrong

SPEC_BYTES_MAX: Final = 64 * 1024  # of a whole spec, as JSON
GPUS_MAX: Final = 100_000
GPUS_PER_NODE_MAX: Final = 64
COMMAND_BYTES_MAX: Final = 32 * 1024
COMMAND_WORDS_MAX: Final = 1_000
ENV_MAX: Final = 500
ENV_BYTES_MAX: Final = 32 * 1024
GPU_TYPES_MAX: Final = 16
PATH_MAX: Final = 1_024
RUNTIME_MAX_S: Final = 366 * 86_400
GRACE_MAX_S: Final = 3_600
START_WITHIN_MAX_S: Final = 86_400
RETRIES_MAX: Final = 1_000
SIGNALS: Final = ("SIGUSR2", "SIGUSR1", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")

DURATION: Final = re.compile(r"(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+)s?)?")
DURATION_RULE: Final = "a time such as 90, 90s, 10m, 1h30m or 2d"
RESERVED: Final = frozenset(  # set by the agent for each rank, whatever a job says
    [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
    ]
)
ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
GPU_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")


def checked(raw: object, team: TeamId) -> JobSpec | Refused:
    """The job that `raw`, a mapping as typed, describes for `team`; or what is wrong with it, field by field."""
    if not isinstance(raw, dict):
        return Refused(
            code=RefusalCode.INVALID,
            message=f"spec: must be a mapping of fields to values, not {shown(raw)}",
            hint="name, gpus and command are the least that a job needs",
        )
    try:
        size = len(msgspec.json.encode(raw))
    except (TypeError, ValueError, RecursionError) as error:
        return Refused(code=RefusalCode.INVALID, message=f"spec: cannot be written as JSON: {error}")
    if size > SPEC_BYTES_MAX:
        return too_large(size)
    try:
        typed = SpecTyped.model_validate(raw)
    except ValidationError as error:
        return refusal_of(error, SpecTyped)
    if typed.team is not None and typed.team != team:
        return Refused(
            code=RefusalCode.FORBIDDEN,
            message=f"team: the spec names {shown(typed.team)}, but {team!r} asks",
            hint="leave team out of the spec, or ask as that team",
        )
    return typed.meant()


def too_large(size: int) -> Refused:
    """The answer to a spec of `size` bytes, which is more than one may have."""
    return Refused(
        code=RefusalCode.TOO_LARGE,
        message=f"spec: has {size} bytes, {SPEC_BYTES_MAX} is the most",
        hint="put data and long scripts into files that the command reads",
    )


def request_hash(spec: JobSpec) -> str:
    """What tells a repeat from another ask: of the fields that differ from their defaults, so new ones do not change it."""
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()


def _seconds(value: object) -> object:
    """Whole seconds of a number, or of text such as 1h30m."""
    if isinstance(value, str) and (found := DURATION.fullmatch(value.strip())) and any(found.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wrong(f"must be {DURATION_RULE}, not {shown(value)}")


def _command(value: object) -> object:
    """The words of a command given as a list, or as text that is split as a shell would."""
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise wrong(f"{shown(value)} cannot be split into words: {error}", "give a list of words") from error
    if not isinstance(value, list | tuple):
        raise wrong(f"must be text or a list of words, not {shown(value)}")
    words = tuple(str(word) if _is_number(word) else word for word in value)
    _check_command(words)
    return words


def _check_command(words: tuple[object, ...]) -> None:
    odd = next((word for word in words if not isinstance(word, str)), None)
    if odd is not None or any(not isinstance(word, str) for word in words):
        raise wrong(f"has {shown(odd)}, which is not text", 'put quotes around it: "true"')
    if not words or not words[0]:
        raise wrong("is empty: it says nothing to run", 'for example ["python", "train.py"]')
    if len(words) > COMMAND_WORDS_MAX:
        raise wrong(f"has {len(words)} words, {COMMAND_WORDS_MAX} is the most")
    size = sum(len(str(word).encode("utf-8", "surrogatepass")) for word in words)
    if size > COMMAND_BYTES_MAX:
        raise wrong(f"has {size} bytes, {COMMAND_BYTES_MAX} is the most", "put the script into a file")
    if any("\0" in str(word) for word in words):
        raise wrong("has a NUL character")


def _env(value: object) -> object:
    """Variables with their values as text; numbers are written as typed."""
    if not isinstance(value, dict):
        raise wrong(f"must be a mapping of names to text, not {shown(value)}")
    if len(value) > ENV_MAX:
        raise wrong(f"has {len(value)} variables, {ENV_MAX} is the most")
    texts: dict[str, str] = {}
    for name, given in value.items():
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise wrong(f"has a variable named {shown(name)}; a name is letters, digits and _, no digit first")
        if name in RESERVED or name.startswith("MUSTER_"):
            raise wrong(f"{name} cannot be set: every rank gets its own", "use another name")
        if not isinstance(given, str) and not _is_number(given):
            raise wrong(f"{name} is {shown(given)}, which is not text", f'put quotes around it: {name}: "…"')
        if "\0" in str(given):
            raise wrong(f"{name} has a NUL character")
        texts[name] = str(given)
    size = sum(len(name) + len(text.encode("utf-8", "surrogatepass")) for name, text in texts.items())
    if size > ENV_BYTES_MAX:
        raise wrong(f"has {size} bytes, {ENV_BYTES_MAX} is the most")
    return texts


def _gpu_types(value: object) -> object:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else None
    if names is None or len(names) > GPU_TYPES_MAX:
        raise wrong(f"must be one GPU type or a list of up to {GPU_TYPES_MAX}, not {shown(value)}")
    odd = next((name for name in names if not isinstance(name, str) or not GPU_TYPE.fullmatch(name)), None)
    if odd is not None:
        raise wrong(f"has {shown(odd)}; a GPU type is 1 to 40 letters, digits, spaces and . _ -")
    return tuple(dict.fromkeys(names))


def _signal(value: object) -> object:
    name = value.upper() if isinstance(value, str) else ""
    name = name if name.startswith("SIG") else f"SIG{name}"
    if name not in SIGNALS:
        raise wrong(f"must be one of {', '.join(SIGNALS)}, not {shown(value)}")
    return name


def _path(value: object) -> object:
    if not isinstance(value, str) or "\0" in value or len(value) > PATH_MAX:
        raise wrong(f"must be a path of at most {PATH_MAX} characters, not {shown(value)}")
    if value and not value.startswith("/"):
        raise wrong(f"{shown(value)} is relative, and to nothing on another machine", "give it from / on")
    return value


def _job_name(value: object) -> object:
    if not isinstance(value, str):
        raise wrong(f"must be text, not {shown(value)}")
    if problem := job_name_problem(value):
        near = near_name(value, 40)
        raise wrong(problem, f"for example {near}" if near else "")
    return value


def _account(value: object) -> object:
    return value if value == "" else name_typed(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Seconds = Annotated[int, BeforeValidator(_seconds)]
Grace = Annotated[Seconds, Field(ge=0, le=GRACE_MAX_S)]
Path = Annotated[str, BeforeValidator(_path)]
Retries = Annotated[int, Field(ge=0, le=RETRIES_MAX)]


class CheckpointTyped(BaseModel):
    """How the job is told to save its progress before it is stopped."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Checkpoint")

    signal: Annotated[str, BeforeValidator(_signal)] = Field("SIGUSR2", description=f"One of {', '.join(SIGNALS)}.")
    grace: Grace = Field(
        30,
        validation_alias=AliasChoices("grace", "grace_s"),
        description=f"From the signal to SIGTERM: {DURATION_RULE}.",
    )
    directory: Path = Field("", description="Where progress is saved; left out: one of the job's own.")


class SpecTyped(BaseModel):
    """A job as people describe it. `name`, `gpus` and `command` are the least."""

    model_config = ConfigDict(strict=True, extra="forbid", title="JobSpec")

    name: Annotated[str, BeforeValidator(_job_name)] = Field(description="1 to 40 of a-z, 0-9 and -.")
    team: str | None = Field(None, description="Whose job it is; when given, the team that asks.")
    command: Annotated[tuple[str, ...], BeforeValidator(_command)] = Field(
        description="What each rank runs: a list of words, or text that is split as a shell would."
    )
    gpus: int | None = Field(None, ge=1, le=GPUS_MAX, description="Of the whole gang; or nodes and gpus_per_node.")
    nodes: int | None = Field(None, ge=1, le=GPUS_MAX, description="On how many nodes, the same number on each.")
    gpus_per_node: int | None = Field(None, ge=1, le=GPUS_PER_NODE_MAX, description="On each node.")
    gpu_types: Annotated[tuple[str, ...], BeforeValidator(_gpu_types)] = Field(
        (), description="Accepted types, the preferred first: text or a list; left out: any."
    )
    min_gpus: int | None = Field(
        None, ge=1, le=GPUS_MAX, description="An elastic gang starts with so many at the least; left out: with all."
    )
    topology: TopologyField = Field(None, description="rack or spine: how close together; left out: anywhere.")
    labels: LabelsField = Field(default={}, description="That each of its nodes must have.")
    tolerates: TaintsField = Field((), description="Taints of nodes that it may go to all the same: text or a list.")
    env: Annotated[dict[str, str], BeforeValidator(_env)] = Field(default={}, description="Environment variables.")
    workdir: Path = Field("", description="Where ranks start; left out: a fresh directory of the run's.")
    priority: Priority = Field(Priority.NORMAL, strict=False, description="Priority class.")
    ranks: Ranks = Field(Ranks.PER_GPU, strict=False, description="One process a GPU, or one a node.")
    max_runtime: Annotated[Seconds, Field(ge=0, le=RUNTIME_MAX_S)] = Field(
        0,
        validation_alias=AliasChoices("max_runtime", "max_runtime_s"),
        description=f"From the start of all ranks: {DURATION_RULE}; 0: no limit.",
    )
    stop_grace: Grace = Field(
        10,
        validation_alias=AliasChoices("stop_grace", "stop_grace_s"),
        description=f"From SIGTERM to SIGKILL: {DURATION_RULE}.",
    )
    preemptible: bool = Field(True, description="Whether a more urgent job may stop it.")
    checkpoint: CheckpointTyped | None = Field(None, description="How to save progress before a stop.")
    retries_application: Retries = Field(0, description="New attempts after a rank exited with another code than 0.")
    retries_infrastructure: Retries = Field(
        3, description="New attempts after failures of nodes, GPUs or the control plane; then it is held."
    )
    start_within: Annotated[Seconds, Field(ge=0, le=START_WITHIN_MAX_S)] = Field(
        0,
        validation_alias=AliasChoices("start_within", "start_within_s"),
        description=f"From its placement until all ranks have started, else it is tried elsewhere: {DURATION_RULE};"
        " 0: as the policy says.",
    )
    on_lost: OnLost = Field(OnLost.RESTART, strict=False, description="What becomes of it when a node is lost.")
    account: Annotated[str, BeforeValidator(_account)] = Field(
        "", description="Which of its team's accounts pays; left out: the first that lists its queue."
    )

    @model_validator(mode="after")
    def _shape_agrees(self) -> "SpecTyped":
        """The three numbers of GPUs say the same, and at least one says how many."""
        gpus, nodes, each = self.gpus, self.nodes, self.gpus_per_node
        if gpus is None and (nodes is None or each is None):
            raise wrong("gpus: is missing: how many GPUs does the whole gang need?", "for example gpus: 8")
        if gpus is None and nodes is not None and each is not None and nodes * each > GPUS_MAX:
            raise wrong(f"gpus: {nodes} nodes of {each} GPUs are {nodes * each}, {GPUS_MAX} is the most")
        if gpus is not None and nodes is not None and each is not None and nodes * each != gpus:
            raise wrong(f"gpus: is {gpus}, but {nodes} nodes of {each} GPUs are {nodes * each}", "leave one out")
        for name, part in (("nodes", nodes), ("gpus_per_node", each)):
            if gpus is not None and part is not None and gpus % part:
                raise wrong(f"{name}: {gpus} GPUs cannot be divided evenly by {part}")
        return self

    @model_validator(mode="after")
    def _least_agrees(self) -> "SpecTyped":
        """An elastic gang has no more at the least than at the most, and whole nodes where their size is given."""
        gpus, _, each = self._shape()
        if self.min_gpus is not None and (problem := min_gpus_problem(self.min_gpus, gpus, each)) is not None:
            raise wrong(*problem)
        return self

    def _shape(self) -> tuple[int, int, int]:
        """GPUs of the whole gang, nodes, and GPUs on each; both 0 where neither was given."""
        gpus, nodes, each = self.gpus or 0, self.nodes or 0, self.gpus_per_node or 0
        gpus = gpus or nodes * each
        if nodes or each:
            nodes, each = nodes or gpus // each, each or gpus // nodes
        return gpus, nodes, each

    def meant(self) -> JobSpec:
        """The spec with its shape worked out."""
        gpus, nodes, each = self._shape()
        return JobSpec(
            name=self.name,
            command=self.command,
            gpus=gpus,
            nodes=nodes,
            gpus_per_node=each,
            gpu_types=self.gpu_types,
            env=self.env,
            workdir=self.workdir,
            priority=self.priority,
            ranks=self.ranks,
            max_runtime_s=self.max_runtime,
            stop_grace_s=self.stop_grace,
            preemptible=self.preemptible,
            checkpoint=_checkpoint(self.checkpoint),
            retries_application=self.retries_application,
            retries_infrastructure=self.retries_infrastructure,
            on_lost=self.on_lost,
            min_gpus=self.min_gpus or 0,
            topology=self.topology.meant() if self.topology is not None else None,
            labels=self.labels,
            tolerates=self.tolerates,
            account=self.account,
            start_within_s=self.start_within,
        )


def _checkpoint(typed: CheckpointTyped | None) -> Checkpoint | None:
    if typed is None:
        return None
    return Checkpoint(signal=typed.signal, grace_s=typed.grace, directory=typed.directory)


def schema() -> dict[str, Any]:
    """The JSON Schema of a spec as typed, for editors and for the API's documents."""
    return SpecTyped.model_json_schema()
