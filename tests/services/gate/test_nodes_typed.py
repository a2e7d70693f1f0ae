"""What people may type about the nodes of a job: how few GPUs, how close together, which labels and taints."""

from typing import Any

import pytest

from events.ask import RefusalCode, Refused
from events.base import TeamId
from events.job import Domain, JobSpec, Topology
from services.gate.spec import checked

LEAST: dict[str, Any] = {"name": "train", "command": "python train.py", "gpus": 8}


def meant(**changed: Any) -> JobSpec:
    """The spec that `LEAST` with changes means."""
    spec = checked(LEAST | changed, TeamId("research"))
    assert isinstance(spec, JobSpec), spec
    return spec


def test_where_a_job_may_go_has_short_forms() -> None:
    """A domain alone is required; one taint needs no list; what says nothing leaves the spec as it was."""
    assert meant(topology="rack").topology == Topology(within=Domain.RACK, required=True)
    assert meant(topology={"within": "rack"}) == meant(topology="rack")
    assert meant(tolerates="slow").tolerates == ("slow",)
    assert meant(topology=None, labels={}, tolerates=[], min_gpus=None) == meant()


@pytest.mark.parametrize(
    ("changed", "least"),
    [
        ({"min_gpus": 1}, 1),
        ({"min_gpus": 8}, 8),
        ({"min_gpus": 4, "nodes": 4}, 4),
        ({"gpus": None, "nodes": 4, "gpus_per_node": 8, "min_gpus": 16}, 16),
    ],
)
def test_an_elastic_gang_has_a_least_in_whole_shares(changed: dict[str, Any], least: int) -> None:
    """Where it says how large a share is."""
    assert meant(**changed).min_gpus == least


@pytest.mark.parametrize(
    ("changed", "told", "hint"),
    [
        ({"min_gpus": 0}, "min_gpus: must be 1 or more, not 0", ""),
        ({"min_gpus": 9}, "min_gpus: is 9, more than the 8 GPUs of the whole gang", "min_gpus the least"),
        ({"min_gpus": 3, "nodes": 4}, "min_gpus: 3 GPUs are no whole number of nodes of 2", "a multiple of 2"),
        ({"topology": "rak"}, "topology.within: must be one of rack, spine, not 'rak'", "did you mean rack?"),
        ({"topology": ["rack"]}, "topology: must be rack or spine, or a mapping", "for example topology: rack"),
        ({"topology": {"required": True}}, "topology.within: is missing", ""),
        ({"topology": {"within": "rack", "need": 1}}, "topology.need: there is no such field", "within, required"),
        ({"topology": {"within": "rack", "required": 1}}, "topology.required: must be true or false, not 1", ""),
        ({"labels": ["a=b"]}, "labels: must be a mapping of names to text", "for example labels:"),
        ({"labels": {"a b": "c"}}, "labels: has a label named 'a b'", ""),
        ({"labels": {"a": True}}, "labels: a is true, which is not text", 'put quotes around it: a: "…"'),
        ({"labels": {"a": "b,c"}}, "labels: a is 'b,c'; a value is 1 to 63 letters", ""),
        ({"labels": {f"l{n}": "x" for n in range(33)}}, "labels: has 33 labels, 32 is the most", ""),
        ({"tolerates": {"a": 1}}, "tolerates: must be one taint or a list of up to 32", ""),
        ({"tolerates": ["a|b"]}, "tolerates: has 'a|b'; a taint is 1 to 63 letters", ""),
        ({"tolerations": ["a"]}, "tolerations: there is no such field", "did you mean tolerates?"),
    ],
)
def test_what_is_wrong_is_told_with_field_value_and_hint(changed: dict[str, Any], told: str, hint: str) -> None:
    """The message names the field and what was given, the hint what was probably meant."""
    answer = checked(LEAST | changed, TeamId("research"))
    assert isinstance(answer, Refused)
    assert answer.code is RefusalCode.INVALID
    assert told in answer.message
    assert hint in answer.hint
