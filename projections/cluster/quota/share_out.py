"""Sharing a number of GPUs out in integers: in proportion, and by weight up to what each wants."""

from collections.abc import Sequence
from typing import Final

EXACT_BITS: Final = 64  # two ratios of numbers below 2^31 differ by at least 2^-62, so a shift by 64 keeps their order


def in_proportion(amount: int, weights: Sequence[int]) -> list[int]:
    """`amount` in proportion to `weights`, by largest remainders, of equal ones the first; all 0 where all weights are.

    Source: Hamilton's method of apportionment.
    """
    total = sum(weights)
    if not total or amount <= 0:
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    if rest := amount - sum(parts):
        remainders = [-(amount * weight % total) for weight in weights]
        for index in sorted(range(len(weights)), key=remainders.__getitem__)[:rest]:
            parts[index] += 1
    return parts


def by_weight(amount: int, wanted: Sequence[int], weights: Sequence[int]) -> list[int]:
    """`amount` given by weight to those that want it, none more than it wants; the most that can be given is.

    Everyone that does not get all it wants gets the same per weight, to a GPU. Weight 0 gets what is left once all
    others have what they want, in equal parts.

    Source: max-min fairness by progressive filling, with weights.
    """
    if sum(wanted) <= amount:
        return list(wanted)
    parts = _fill(amount, wanted, weights)
    if 0 in weights and (left := amount - sum(parts)) > 0:
        late = [want if not weight else 0 for want, weight in zip(wanted, weights, strict=True)]
        parts = [part + more for part, more in zip(parts, _fill(left, late, [1] * len(late)), strict=True)]
    return parts


def _fill(amount: int, wanted: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Those that want least per weight are served in full, until what is left does not serve the next one so."""
    parts = [0] * len(wanted)
    indexes = [index for index, want in enumerate(wanted) if want and weights[index]]
    indexes.sort(
        key=[(want << EXACT_BITS) // (weight or 1) for want, weight in zip(wanted, weights, strict=True)].__getitem__
    )
    left, weight_left = amount, sum(weights[index] for index in indexes)
    for at, index in enumerate(indexes):
        want, weight = wanted[index], weights[index]
        if want * weight_left > left * weight:
            rest = sorted(indexes[at:])
            for late, part in zip(rest, in_proportion(left, [weights[i] for i in rest]), strict=True):
                parts[late] = part
            break
        parts[index] = want
        left, weight_left = left - want, weight_left - weight
    return parts
