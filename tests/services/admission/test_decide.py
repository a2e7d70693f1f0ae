"""Which jobs are let in, and which never."""

import pytest

from events.job import JobRejected, JobSpec
from services.admission.decide import ADMITTED_MAX, spec_fault
from tests.clusters import World, names


def test_queued_jobs_are_admitted_in_order_up_to_the_limit_of_a_round() -> None:
    """The rest is the next round's."""
    world = World({"n1": 1})
    for number in range(ADMITTED_MAX + 5):
        world.submit(f"j{number}", 1)

    assert names(world.round()).count("JobAdmitted") == ADMITTED_MAX
    assert names(world.round()).count("JobAdmitted") == 5


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (JobSpec(name="a", command=(), gpus=1), "command"),
        (JobSpec(name="a", command=("x",), gpus=0), "0 GPUs"),
        (JobSpec(name="a", command=("x",), gpus=-1), "-1 GPUs"),
        (JobSpec(name="a", command=("x",), gpus=5, nodes=2, gpus_per_node=2), "2 nodes x 2"),
        (JobSpec(name="a", command=("x",), gpus=4, nodes=2), "go together"),
    ],
)
def test_a_job_that_can_run_nowhere_is_rejected_with_the_numbers(spec: JobSpec, word: str) -> None:
    """The gate refuses such specs; a log may hold them all the same."""
    fault = spec_fault(spec)
    assert fault is not None
    assert word in fault


def test_a_rejected_job_is_forgotten() -> None:
    """Terminal: nothing follows."""
    world = World({"n1": 8})
    world.submit("bad", 5, nodes=2, gpus_per_node=2)

    (rejected,) = world.rounds()

    assert isinstance(rejected, JobRejected)
    assert not world.cluster.jobs
    world.assert_sound()
