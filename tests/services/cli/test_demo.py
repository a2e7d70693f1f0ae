"""What the demo submits."""

import pytest

from events.base import TeamId
from events.job import JobSpec
from services.cli.demo import EXAMPLES, GANG, SMALL, WAITS
from services.cli.specfile import read_spec
from services.gate.spec import checked


@pytest.mark.parametrize("example", sorted({GANG, WAITS, *SMALL}))
def test_the_examples_are_specs_that_the_gate_takes(example: str) -> None:
    """Each is there, and the program that it runs is beside it."""
    spec = checked(read_spec(str(EXAMPLES / f"{example}.yaml")).body, TeamId("default"))
    assert isinstance(spec, JobSpec), spec
    assert (EXAMPLES / spec.command[-1]).exists()
    assert (spec.gpus > 32) == (example == WAITS)
