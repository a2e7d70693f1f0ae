"""Sharing out in integers: nothing is lost, nobody gets more than it wants, and weights count."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cluster.quota.share_out import by_weight, in_proportion

AMOUNTS = st.integers(0, 20_000)
PARTS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 9)), max_size=12)


@pytest.mark.parametrize(
    ("amount", "weights", "parts"),
    [
        (10_000, [5, 3, 2], [5_000, 3_000, 2_000]),
        (10, [1, 1, 1], [4, 3, 3]),  # the first of equal remainders
        (2, [1, 1, 1], [1, 1, 0]),
        (10, [1, 6], [1, 9]),
        (7, [0, 1], [0, 7]),
        (7, [0, 0], [0, 0]),
        (0, [1], [0]),
        (-3, [1], [0]),
        (5, [], []),
    ],
)
def test_parts_are_in_proportion_by_largest_remainders(amount: int, weights: list[int], parts: list[int]) -> None:
    """Ties go to the first, which is the first by name."""
    assert in_proportion(amount, weights) == parts


@pytest.mark.parametrize(
    ("amount", "wanted", "weights", "parts"),
    [
        (2_000, [5_000, 3_000, 0], [5, 3, 2], [1_250, 750, 0]),
        (10, [1, 100, 100], [1, 1, 1], [1, 5, 4]),
        (10, [100, 3], [1, 9], [7, 3]),  # the heavier one wants little
        (10, [100, 4], [0, 1], [6, 4]),  # weight 0: what the other leaves
        (10, [100, 20], [0, 1], [0, 10]),
        (10, [8, 8], [0, 0], [5, 5]),
        (100, [3, 4], [1, 1], [3, 4]),
        (3, [2, 2], [1, 1], [2, 1]),  # 1.5 each: a gang of 2 starts all the same
    ],
)
def test_what_is_left_goes_by_weight_to_those_that_want_it(
    amount: int, wanted: list[int], weights: list[int], parts: list[int]
) -> None:
    """Up to what they want."""
    assert by_weight(amount, wanted, weights) == parts


@given(AMOUNTS, PARTS)
def test_all_is_given_that_can_be_and_no_more_than_is_wanted(amount: int, asked: list[tuple[int, int]]) -> None:
    """Conservation: a GPU that somebody wants is somebody's."""
    wanted, weights = [want for want, _ in asked], [weight for _, weight in asked]

    parts = by_weight(amount, wanted, weights)

    assert sum(parts) == min(amount, sum(wanted))
    assert all(0 <= part <= want for part, want in zip(parts, wanted, strict=True))


@given(AMOUNTS, PARTS)
def test_who_gets_less_than_it_wants_gets_as_much_per_weight_as_any_other(
    amount: int, asked: list[tuple[int, int]]
) -> None:
    """Max-min fairness, to a GPU; and weight 0 has nothing while another one wants."""
    wanted, weights = [want for want, _ in asked], [weight for _, weight in asked]
    parts = by_weight(amount, wanted, weights)
    short = [i for i, weight in enumerate(weights) if weight and parts[i] < wanted[i]]
    for i in short:
        for j, weight in enumerate(weights):
            if weight:
                assert Fraction(parts[i] + 1, weights[i]) >= Fraction(parts[j] - 1, weight)
            else:
                assert parts[j] == 0


@given(AMOUNTS, PARTS, st.data())
def test_who_wants_more_takes_nothing_below_its_weights_part(
    amount: int, asked: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Monotone: whatever one of them wants, the others keep the least of what they want and their part of the whole."""
    weights = [weight for _, weight in asked]
    wanted = [want for want, _ in asked]
    if not sum(weights):
        return
    greedy = data.draw(st.integers(0, len(asked) - 1))
    wanted[greedy] += data.draw(AMOUNTS)

    parts = by_weight(amount, wanted, weights)

    for part, want, weight in zip(parts, wanted, weights, strict=True):
        assert part >= min(want, amount * weight // sum(weights))
