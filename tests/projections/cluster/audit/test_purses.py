"""The auditor's own arithmetic, held to definitions."""

from hypothesis import given
from hypothesis import strategies as st

from projections.cluster.audit.purses import NANO_US, cost, stepped
from tests.projections.cluster.audit.crediting import NANO, PER_GPU_S, SECOND


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 40))
def test_the_auditor_rounds_once_to_the_nearest_and_to_the_even_one_of_two(gpu_us: int, nano: int) -> None:
    """Held to the definition: twice the distance is at most the unit, and at the unit the result is even."""
    exact, rounded = gpu_us * nano, cost(gpu_us, nano)

    distance = 2 * abs(exact - rounded * NANO_US)
    assert distance < NANO_US or (distance == NANO_US and rounded % 2 == 0)


def test_half_a_micro_credit_goes_to_the_even_one() -> None:
    """2.5 is 2, 3.5 is 4."""
    assert [cost(NANO_US // 2, nano) for nano in (1, 3, 5, 7)] == [0, 2, 2, 4]
    assert NANO // 1_000 == 3_600 * PER_GPU_S


@given(st.integers(-(1 << 40), 1 << 50), st.integers(0, 1 << 20))
def test_time_counts_in_whole_steps(time_us: int, step_s: int) -> None:
    """The fewest steps that hold it; without steps it is what it is; less than none is none."""
    charged = stepped(time_us, step_s)

    assert charged >= max(0, time_us)
    assert charged - max(0, time_us) < max(1, step_s * SECOND)
    assert charged % (step_s * SECOND or 1) == 0
