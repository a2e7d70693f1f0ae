"""What people type about the nodes that a job may go to: how close together, their labels, and taints it puts up with."""

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from events.job import Domain, Topology
from events.subjects import LABEL as WORD
from events.subjects import LABEL_RULE as WORD_RULE
from services.gate.names import shown
from services.gate.problems import wrong

LABELS_MAX: Final = 32
TAINTS_MAX: Final = 32


class TopologyTyped(BaseModel):
    """How close together the nodes of a gang stand. `topology: rack` is short for `{within: rack, required: true}`."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Topology")

    within: Domain = Field(strict=False, description="All nodes in one rack, or under one spine.")
    required: bool = Field(True, description="false: as few racks or spines as hold the gang, rather than waiting.")

    def meant(self) -> Topology:
        """As the log keeps it."""
        return Topology(within=self.within, required=self.required)


def _topology(value: object) -> object:
    """The long form of what may be a single word."""
    if isinstance(value, str):
        return {"within": value}
    if value is not None and not isinstance(value, dict):
        domains = " or ".join(Domain)
        raise wrong(f"must be {domains}, or a mapping, not {shown(value)}", "for example topology: rack")
    return value


def _labels(value: object) -> object:
    """Labels with their values as text; numbers are written as typed."""
    if not isinstance(value, dict):
        raise wrong(f"must be a mapping of names to text, not {shown(value)}", "for example labels: {fabric: ib}")
    if len(value) > LABELS_MAX:
        raise wrong(f"has {len(value)} labels, {LABELS_MAX} is the most")
    labels: dict[str, str] = {}
    for name, given in value.items():
        if not isinstance(name, str) or not WORD.fullmatch(name):
            raise wrong(f"has a label named {shown(name)}; a name is {WORD_RULE}")
        text = str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given
        if not isinstance(text, str):
            raise wrong(f"{name} is {shown(given)}, which is not text", f'put quotes around it: {name}: "…"')
        if not WORD.fullmatch(text):
            raise wrong(f"{name} is {shown(given)}; a value is {WORD_RULE}")
        labels[name] = text
    return labels


def _taints(value: object) -> object:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else None
    if names is None or len(names) > TAINTS_MAX:
        raise wrong(f"must be one taint or a list of up to {TAINTS_MAX}, not {shown(value)}")
    odd = next((name for name in names if not isinstance(name, str) or not WORD.fullmatch(name)), None)
    if odd is not None:
        raise wrong(f"has {shown(odd)}; a taint is {WORD_RULE}")
    return tuple(dict.fromkeys(names))


TopologyField = Annotated[TopologyTyped | None, BeforeValidator(_topology)]
LabelsField = Annotated[dict[str, str], BeforeValidator(_labels)]
TaintsField = Annotated[tuple[str, ...], BeforeValidator(_taints)]


def min_gpus_problem(min_gpus: int, gpus: int, each: int) -> tuple[str, str] | None:
    """What is wrong with the least number of GPUs of an elastic gang, and a hint; None for nothing."""
    if min_gpus > gpus:
        return (
            f"min_gpus: is {min_gpus}, more than the {gpus} GPUs of the whole gang",
            "gpus is the most, min_gpus the least",
        )
    if each and min_gpus % each:
        return f"min_gpus: {min_gpus} GPUs are no whole number of nodes of {each}", f"give a multiple of {each}"
    return None
