"""Maps, lines and buckets that can be forked, held to plain dictionaries under forks of forks."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cluster.overlay import Buckets, Lines, Overlay, fork_map

KEYS = st.integers(0, 5)
GROUPS = st.sampled_from("ab")
STEPS = st.lists(st.tuples(st.sampled_from(["fork", "drop", "put", "put", "put", "take", "take"]), KEYS, GROUPS))

Model = dict[int, str]


def play(
    steps: list[tuple[str, int, str]],
    base: Any,
    change: Callable[[Any, Model, str, int, str], None],
    agree: Callable[[Any, Model], None],
) -> None:
    """Steps on the newest layer, each with its model; after every step all layers agree with theirs."""
    layers: list[tuple[Any, Model]] = [(base, {})]
    for kind, key, group in steps:
        newest, model = layers[-1]
        if kind == "fork":
            layers.append((newest.fork() if hasattr(newest, "fork") else fork_map(newest), dict(model)))
        elif kind == "drop" and len(layers) > 1:
            layers.pop()  # what is left is as if it had never been forked
        elif kind != "drop":
            change(newest, model, kind, key, group)
        for layer, expected in layers:
            agree(layer, expected)


@given(STEPS)
def test_a_fork_of_a_map_is_a_map(steps: list[tuple[str, int, str]]) -> None:
    """Items, length, membership and missing keys are those of a plain dictionary, and what lies below stays."""

    def change(layer: Any, model: Model, kind: str, key: int, group: str) -> None:
        if kind == "put":
            layer[key] = model[key] = group
        elif key in model:
            del layer[key], model[key]
        else:
            with pytest.raises(KeyError):
                del layer[key]

    def agree(layer: Any, model: Model) -> None:
        assert dict(layer.items()) == model
        assert len(layer) == len(model) == len(list(layer))
        assert [key in layer for key in range(6)] == [key in model for key in range(6)]
        assert [layer.get(key) for key in range(6)] == [model.get(key) for key in range(6)]

    play(steps, {}, change, agree)


def test_a_key_taken_out_of_a_fork_is_missing_there_and_only_there() -> None:
    """The error of a plain dictionary."""
    below = {"a": 1}
    fork = Overlay(below)
    del fork["a"]

    with pytest.raises(KeyError):
        fork["a"]
    assert below["a"] == 1


def test_a_line_by_moments_gives_what_has_come() -> None:
    """That moment too, in order, with what a fork has put in or taken out."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    lines: Lines[str, int] = Lines()
    for minute in (3, 1, 2):
        lines.add("a", ((begin + timedelta(minutes=minute)).timestamp(), 7), minute)
    fork = lines.fork()
    fork.add("a", (begin.timestamp(), 7), 0)
    fork.remove("a", ((begin + timedelta(minutes=1)).timestamp(), 7))

    at = begin + timedelta(minutes=2)
    assert (list(lines.until("a", at)), list(fork.until("a", at)), list(fork.until("b", at))) == ([1, 2], [0, 2], [])


@given(STEPS)
def test_lines_keep_their_order_in_every_fork(steps: list[tuple[str, int, str]]) -> None:
    """Order, counts, groups and missing entries are those of a dictionary that is sorted when looked at."""

    def change(layer: Any, model: Model, kind: str, key: int, group: str) -> None:
        if kind == "put" and key not in model:  # a key is in at most one group, and its value follows from it
            layer.add(group, (key,), f"value {key}")
            model[key] = group
        elif kind == "take" and model.get(key) == group:
            layer.remove(group, (key,))
            del model[key]
        elif kind == "take":
            with pytest.raises(KeyError):
                layer.remove(group, (key,))

    def agree(layer: Any, model: Model) -> None:
        assert sorted(layer.groups()) == sorted(set(model.values()))
        for group in "ab":
            entries = [((key,), f"value {key}") for key in sorted(model) if model[key] == group]
            assert list(layer.line(group)) == entries
            assert layer.count(group) == len(entries)
            assert [layer.has(group, (key,)) for key in range(6)] == [model.get(key) == group for key in range(6)]

    play(steps, Lines(), change, agree)


@given(STEPS)
def test_buckets_are_sorted_in_every_fork(steps: list[tuple[str, int, str]]) -> None:
    """Names of a bucket are sorted, empty buckets do not exist, and those below stay as they are."""

    def change(layer: Any, model: Model, kind: str, key: int, group: str) -> None:
        if kind == "put" and key not in model:
            layer.add(group, f"n{key}")
            model[key] = group
        elif kind == "take" and key in model:
            layer.remove(model.pop(key), f"n{key}")

    def agree(layer: Any, model: Model) -> None:
        assert sorted(layer.groups()) == sorted(set(model.values()))
        for group in "ab":
            assert layer.names(group) == [f"n{key}" for key in sorted(model) if model[key] == group]

    play(steps, Buckets(), change, agree)


def test_what_buckets_were_forked_from_can_go_on_changing() -> None:
    """A room and what was forked from it follow the same round: neither sees what only the other gives away."""
    below: Buckets[int] = Buckets()
    below.add(8, "a")
    below.add(8, "b")
    fork = below.fork()

    below.remove(8, "a")
    below.add(8, "c")

    assert (below.names(8), fork.names(8)) == (["b", "c"], ["a", "b"])
    fork.remove(8, "a")
    assert (below.names(8), fork.names(8)) == (["b", "c"], ["b"])
