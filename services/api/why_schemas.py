"""What the API says of why a job waits, and of what would become of one: the models of its OpenAPI document."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field, computed_field

from events.amounts import spelled_credits
from services.api.schemas import POSITION

Tier = Literal["held", "impossible", "over_quota", "room", "not_evaluated", ""]
Basis = Literal["next_round", "back_off", "preempted", "promise", "declared_ends", "unknown", ""]
Outcome = Literal["starts", "preempts", "moves", "promised", "waits", "rejected", "not_evaluated"]


class Charged(BaseModel):
    """What is reserved for a job, in credits and in whole micro-credits."""

    account: str = Field(description="That pays for it; empty: nobody charges it, or none may be charged.")
    reserves_micro: int | None = Field(description="Reserved for its run, or to be before it may run; null: nothing.")
    short_micro: int = Field(description="Of what is to be reserved, what the account cannot pay now.")
    charge: str = Field(description="How `reserves` is worked out.")

    @computed_field(description="`reserves_micro` in credits.")  # type: ignore[prop-decorator]
    @property
    def reserves(self) -> str | None:
        """In credits, as a decimal."""
        return spelled_credits(self.reserves_micro) if self.reserves_micro is not None else None

    @computed_field(description="`short_micro` in credits.")  # type: ignore[prop-decorator]
    @property
    def short(self) -> str:
        """In credits, as a decimal."""
        return spelled_credits(self.short_micro)


class WhyAnswer(Charged):
    """Why a job waits, with the numbers, or what became of it."""

    job_id: str
    team: str
    state: str
    tier: Tier = Field(description="What kind of reason `code` is; empty when it does not wait.")
    code: str = Field(description="Stable: see docs/why.md; empty when it does not wait.")
    message: str = Field(description="A sentence with the numbers.")
    need: dict[str, int]
    have: dict[str, int]
    ahead: int = Field(description="Waiting jobs before it.")
    behind: str = Field(description="The job that holds it up, or the first in order of those before it.")
    blockers: list[str] = Field(description="Jobs that hold what it needs, the largest first.")
    preempting: list[str] = Field(description="Jobs that are stopped for it.")
    reserved: list[str] = Field(description="Nodes that drain towards it, or are set aside for it.")
    queue: str = Field(description="Whose bound or stop it is, for the codes that have one.")
    limit: int | None = Field(description="That bound, in GPUs or jobs.")
    gpu_type: str = Field(description="That `entitled` and `used` are of.")
    entitled: int | None = Field(description="GPUs that its team may claim now.")
    used: int | None = Field(description="GPUs that its team has.")
    estimated_start: datetime | None = Field(description="null: `basis` says why there is none.")
    basis: Basis = Field(description="What the estimate rests on.")
    estimate: str = Field(description="A sentence about that.")
    has_micro: int | None = Field(
        description="Micro-credits that its account can still pay; null: no account, or no bound."
    )
    next_action: str
    source: Literal["leader", "standby", "tables", "log"] = Field(description="Who said so; log: with `at`.")
    note: str = Field(description="How old the answer is, when it does not come from the control plane.")
    at: datetime | None = Field(description="The moment that it is of.")
    position: int = Field(description=POSITION)


class DryRunAnswer(Charged):
    """What would become of the job, were it submitted now. Nothing was written."""

    team: str
    outcome: Outcome
    code: str = Field(description="Why it would wait, or be rejected.")
    message: str = Field(description="A sentence with the numbers.")
    nodes: dict[str, int] = Field(description="Where it would start, now or later, and on how many GPUs of each.")
    preempts: list[str] = Field(description="Jobs that would be stopped, or moved, for it.")
    gpu_type: str = Field(description="That it would get, or wants first.")
    gpus: int = Field(description="That it would get: fewer than it asks for where it is elastic.")
    entitled: int = Field(description="GPUs of that type that its team may claim, with this job among its demand.")
    used: int = Field(description="GPUs of that type that its team would have with it.")
    borrowed: int = Field(description="Of those, beyond what the team is entitled to.")
    estimated_start: datetime | None = Field(description="When it would start, where it would not at once.")
    why: WhyAnswer | None = Field(description="All numbers, where it would wait.")
    source: Literal["leader", "standby"] = Field(description="Who said so.")
    position: int = Field(description=POSITION)
