"""What operators type to say how the control plane decides, checked field by field, and the `PolicySet` that it means."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from events.ask import RefusalCode, Refused
from events.base import Count
from events.policy import Bearer, ChargeFrom, Consolidation, JobOrder, Overrun, PlacePolicy, PolicySet, Waived
from services.gate.durations import COUNT_MAX, SECONDS_MAX, Span, WholeSpan, duration, whole_seconds
from services.gate.names import shown
from services.gate.problems import refusal_of, wrong

PROMISES_MAX: Final = 256  # that the scheduler keeps at once, whatever the policy says
INSTALMENT_SHORT_S: Final = 60  # below it, every run without a declared runtime writes a record that often
# With `_s` in the event.
SPANS: Final = (
    "suspect_after",
    "lost_after",
    "lost_most",
    "restart",
    "keep_place",
    "avoid",
    "start_within",
    "min_runtime",
    "cool_down",
    "half_life",
    "instalment",
)
DEFAULT: Final = PolicySet(at=datetime.min)  # noqa: DTZ901 - only its other fields are looked at

NumberField = Annotated[int, Field(ge=0, le=COUNT_MAX)]
PercentField = Annotated[int, Field(ge=0, le=100)]


def checked_policy(raw: object, at: datetime) -> PolicySet | Refused:
    """The policy that `raw`, a mapping as typed, describes; or all that is wrong with it. Left out is: the default."""
    if not isinstance(raw, Mapping):
        message = f"policy: the document must be a mapping of fields to values, not {shown(raw)}"
        return Refused(code=RefusalCode.INVALID, message=message, hint="for example  {lost_after: 2m, order: fair}")
    try:
        typed = PolicyTyped.model_validate(dict(raw))
    except ValidationError as error:
        return refusal_of(error, PolicyTyped)
    fields = typed.model_dump()
    return PolicySet(at=at, **{f"{name}_s" if name in SPANS else name: value for name, value in fields.items()})


def policy_document(policy: PolicySet | None) -> dict[str, Any]:
    """How such a document is typed, with every field. Read back, it is the same. None: what holds where nobody set one."""
    policy = policy or DEFAULT
    document: dict[str, Any] = {}
    for name in PolicyTyped.model_fields:
        value = getattr(policy, f"{name}_s" if name in SPANS else name)
        document[name] = duration(value) if name in SPANS else getattr(value, "value", value)
    return document


def policy_changes(before: PolicySet | None, after: PolicySet) -> list[str]:
    """What differs, a line a field."""
    old, new = policy_document(before), policy_document(after)
    return [f"~ {name}: {_told(old[name])} -> {_told(new[name])}" for name in new if old[name] != new[name]]


def policy_oddities(policy: PolicySet) -> list[str]:
    """What is legal in this policy and probably not meant."""
    told = []
    if policy.promises > PROMISES_MAX:
        told.append(f"promises is {policy.promises}: no more than {PROMISES_MAX} gangs hold one at once")
    if policy.instalment_s < INSTALMENT_SHORT_S:
        told.append(
            f"instalment is {duration(policy.instalment_s)}: so often each run without a declared runtime is renewed, a record each time"
        )
    return told


def _told(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _off(value: object) -> object:
    return "off" if value is False else value  # a bare `off` is false in YAML


class PolicyTyped(BaseModel):
    """How the control plane decides. What is left out has its default."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Policy")

    suspect_after: Span = Field(
        30.0,
        validation_alias=AliasChoices("suspect_after", "suspect_after_s"),
        description="Silence after which nothing new is placed on a node.",
    )
    lost_after: Span = Field(
        90.0,
        validation_alias=AliasChoices("lost_after", "lost_after_s"),
        description="The least silence after which a node is declared lost; more than suspect_after.",
    )
    lost_most: Span = Field(
        900.0,
        validation_alias=AliasChoices("lost_most", "lost_most_s"),
        description="The most, however much a restart would cost; less than lost_after counts as that.",
    )
    restart: WholeSpan = Field(
        120,
        validation_alias=AliasChoices("restart", "restart_s"),
        description="What a run that starts again is taken to need until it goes on.",
    )
    silent_percent: PercentField = Field(
        25, description="As many nodes silent at once make the network suspect, and none is given up; 0: never."
    )
    placement: PlacePolicy = Field(
        PlacePolicy.BEST_FIT, strict=False, description="Which of the nodes that hold a job gets it."
    )
    order: JobOrder = Field(JobOrder.FAIR, strict=False, description="Which waiting job is tried first.")
    blocking: bool = Field(
        False, description="Whether a job that cannot start holds up all behind it that want the same GPU type."
    )
    promises: NumberField = Field(1, description="Gangs that may hold a promise at once; 0: none, 1: EASY backfill.")
    overrun: Overrun = Field(
        Overrun.KILL, strict=False, description="What becomes of a run that reaches its declared runtime."
    )
    preemption: bool = Field(True, description="Whether runs may be stopped for more urgent jobs and for fair share.")
    min_runtime: WholeSpan = Field(
        60,
        validation_alias=AliasChoices("min_runtime", "min_runtime_s"),
        description="How long a run is left alone before it may be evicted.",
    )
    evictions_max: NumberField = Field(3, description="Evictions of one job; from then on it is left alone.")
    cool_down: WholeSpan = Field(
        300,
        validation_alias=AliasChoices("cool_down", "cool_down_s"),
        description="Between two evictions of one job.",
    )
    consolidation: Annotated[Consolidation, BeforeValidator(_off)] = Field(
        Consolidation.PROPOSE,
        strict=False,
        description="What is done when the free GPUs would hold a gang but are scattered.",
    )
    half_life: WholeSpan = Field(
        0,
        validation_alias=AliasChoices("half_life", "half_life_s"),
        description="Of past use in the fair share; 0: only what is in use now counts.",
    )
    admitted_ahead: NumberField = Field(
        100, description="Jobs of one shape that a team may have admitted beyond what it is entitled to."
    )
    charge_from: ChargeFrom = Field(
        ChargeFrom.STARTED, strict=False, description="From when on a run is charged, until its GPUs were released."
    )
    instalment: Annotated[Count, BeforeValidator(whole_seconds), Field(ge=1, le=SECONDS_MAX)] = Field(
        3_600,
        validation_alias=AliasChoices("instalment", "instalment_s"),
        description="Reserved at a time for a run without a declared runtime, or beyond it.",
    )
    waived_failed: Waived = Field(
        Waived.LOST, strict=False, description="What is not charged of a run that a node, a GPU or we ended."
    )
    waived_preempted: Waived = Field(
        Waived.LOST, strict=False, description="What is not charged of a run that was stopped for others, or moved."
    )
    uncovered: Bearer = Field(
        Bearer.ACCOUNT, strict=False, description="Who bears what was used beyond what was reserved."
    )
    breaker_percent: PercentField = Field(
        20, description="Of all GPUs: no more are taken out by verdicts at once, then a person is called; 0: none are."
    )
    keep_place: WholeSpan = Field(
        120,
        validation_alias=AliasChoices("keep_place", "keep_place_s"),
        description="How long a gang that lost a member keeps what it still has; 0: not at all.",
    )
    avoid: WholeSpan = Field(
        3_600,
        validation_alias=AliasChoices("avoid", "avoid_s"),
        description="How long a job keeps away from a node that failed it, where there are others.",
    )
    start_within: WholeSpan = Field(
        300,
        validation_alias=AliasChoices("start_within", "start_within_s"),
        description="From a placement until all ranks have started, where the job does not say; 0: no limit.",
    )

    @model_validator(mode="after")
    def _suspected_before_lost(self) -> "PolicyTyped":
        """A node is suspect before it is lost; what is told is the field that was given."""
        suspect, lost = duration(self.suspect_after), duration(self.lost_after)
        if self.lost_after > self.suspect_after:
            return self
        if "lost_after" in self.model_fields_set:
            raise wrong(f"lost_after: must be more than suspect_after, which is {suspect}, not {lost}")
        raise wrong(f"suspect_after: must be less than lost_after, which is {lost}, not {suspect}")


def policy_schema() -> dict[str, Any]:
    """The JSON Schema of the document as typed, for editors and for the API's documents."""
    return PolicyTyped.model_json_schema()
