"""What no free GPUs would help."""

import pytest

from events.job import HoldCode
from projections.cluster.job import Shape
from services.admission.possible import Possible, least_gpus
from tests.clusters import World


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        (Shape(8), None),
        (Shape(16), None),
        (Shape(17), HoldCode.EXCEEDS_CLUSTER),
        (Shape(17, min_gpus=4), None),
        (Shape(1, gpu_types=("b200",)), HoldCode.NO_SUCH_GPU),
        (Shape(1, labels=(("disk", "fast"),)), HoldCode.NO_SUCH_NODE),
    ],
)
def test_a_shape_is_impossible_only_if_all_nodes_together_could_not_hold_it(
    shape: Shape, code: HoldCode | None
) -> None:
    """Free or not, well or not: here one node is silent, and everything is in use."""
    world = World({"n1": 8, "n2": 8})
    world.submit("all", 16)
    world.rounds()
    world.round({"n2": 40.0})  # type: ignore[dict-item]
    possible = Possible(world.cluster)

    assert [possible.fault(shape), possible.fault(shape)] == [code, code]


def test_an_elastic_gang_needs_the_fewest_it_starts_with() -> None:
    """Any other all."""
    assert [least_gpus(Shape(8)), least_gpus(Shape(8, min_gpus=2))] == [8, 2]
