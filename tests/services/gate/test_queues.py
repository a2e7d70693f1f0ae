"""Queues as people type them: every field, every kind of mistake with its place, and back again."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from events.ask import Refused
from events.base import TeamId
from events.queues import Bounds, Queue, QueueOrder, QueuesSet, QueueStop
from runtime.clock import ManualClock
from services.gate.queue_tree import ordered
from services.gate.queues import BoundsTyped, QueueTyped, checked_queues, queues_document, queues_schema

AT = ManualClock().now()
FULL = """
queues:
  - name: research
    weight: 5
    limit: 512
    children:
      - {name: vision, weight: 3, floor: 64, borrowing_limit: 32, lending_limit: 16,
         gpu_types: {h100: {floor: 32, limit: 64}, a100: {lending_limit: 0}},
         order: strict, stop: pause, pending_max: 1000, running_max: 50}
"""


def read(text: str) -> QueuesSet | Refused:
    """What a text means."""
    return checked_queues(yaml.safe_load(text), AT)


def test_every_field_is_taken() -> None:
    """As typed, bounds by GPU type in one place, a parent before its children."""
    vision = Queue(
        name=TeamId("vision"),
        parent="research",
        weight=3,
        bounds=(
            Bounds(floor=64, borrowing_limit=32, lending_limit=16),
            Bounds(gpu_type="a100", lending_limit=0),
            Bounds(gpu_type="h100", floor=32, limit=64),
        ),
        order=QueueOrder.STRICT,
        stop=QueueStop.PAUSE,
        pending_max=1000,
        running_max=50,
    )
    research = Queue(name=TeamId("research"), weight=5, bounds=(Bounds(limit=512),))
    assert read(FULL) == QueuesSet(at=AT, queues=(research, vision))


def test_what_is_missing_is_no_bound_and_never_zero() -> None:
    """A borrowing limit that nobody wrote lets a queue borrow what is free; an empty value is none too."""
    told = read("queues: [{name: a, limit: , borrowing_limit: null, stop: }, {name: b, borrowing_limit: 0, stop: no}]")
    assert isinstance(told, QueuesSet)
    assert [queue.bounds for queue in told.queues] == [(), (Bounds(borrowing_limit=0),)]
    assert {queue.stop for queue in told.queues} == {QueueStop.NONE}


def test_one_tree_is_one_document_however_it_is_written() -> None:
    """Nested or flat, in any order: so a file that was only put in order changes nothing."""
    flat = "queues: [{name: b, parent: a}, {name: c, parent: b}, {name: a, weight: 2}, {name: d}]"
    nested = "queues: [{name: d}, {name: a, weight: 2, children: [{name: b, parent: a, children: [{name: c}]}]}]"
    assert read(flat) == read(nested)


WRONG = (
    # what it is made of
    ("queues: 3", "queues: must be a list of queues, not 3", "each begins with a dash:  - name: research"),
    ("queues: {a: 1}", "queues: must be a list of queues, not {'a': 1}", "each begins with a dash:  - name: research"),
    ("[]", "queues: the document must be a mapping with the field queues, not []", "for example  queues: ["),
    ("{}", "queues: is missing", "queues: Those at the root"),
    ("queues: [3]", "queues.0: must be a mapping of fields to values, not 3", ""),
    ("queues: [{name: a, children: 1}]", "queues.0.children: must be a list of queues, not 1", "each begins"),
    # unknown keys
    ("queues: [{name: a, wieght: 3}]", "queues.0.wieght: there is no such field", "did you mean weight?"),
    ("queues: [{name: a, quota: 3}]", "queues.0.quota: there is no such field", "did you mean floor?"),
    ("queues: [{name: a, max: 3}]", "queues.0.max: there is no such field", "did you mean limit?"),
    ("queue: []", "queue: there is no such field; queues: is missing", "did you mean queues?"),
    (
        "queues: [{name: a, children: [{name: b, cohort: a}]}]",
        "queues.0.children.0.cohort: there is no such field",
        "did you mean parent?",
    ),
    (
        "queues: [{name: a, gpu_types: {h100: {weight: 5}}}]",
        "queues.0.gpu_types.h100.weight: there is no such field",
        "the fields are floor, limit, borrowing_limit, lending_limit",
    ),
    # names
    ("queues: [{}]", "queues.0.name: is missing", "name: Of the team"),
    ("queues: [{name: 3}]", "queues.0.name: must be text, not 3", 'put quotes around it: "3"'),
    ("queues: [{name: no}]", "queues.0.name: must be text, not false", "put quotes around it: YAML"),
    ("queues: [{name: A b}]", "queues.0.name: 'A b' has a space; a name is 1 to 24", "for example a-b"),
    ("queues: [{name: a}, {name: a}]", "queues.1.name: 'a' is there twice; the other is queues.0", "each team has"),
    (
        "queues: [{name: a, children: [{name: b}]}, {name: b, parent: a}]",
        "queues.1.name: 'b' is there twice; the other is queues.0.children.0",
        "each team has",
    ),
    # parents
    ("queues: [{name: a, parent: 3}]", "queues.0.parent: must be text, not 3", 'put quotes around it: "3"'),
    ("queues: [{name: a, parent: [b]}]", "queues.0.parent: must be text, not ['b']", ""),
    ("queues: [{name: x, parent: abc}, {name: abd}]", "queues.0.parent: there is no queue 'abc'", "did you mean abd?"),
    ("queues: [{name: x, parent: q}]", "queues.0.parent: there is no queue 'q'", "the queues are x"),
    ("queues: [{name: a, parent: a}]", "queues.0.parent: goes round in a circle: a under a", ""),
    (
        "queues: [{name: a, parent: b}, {name: b, parent: a}, {name: c, parent: a}]",
        "queues.0.parent: goes round in a circle: a under b under a; queues.1.parent: goes round in a circle: b under a under b",
        "",
    ),
    (
        "queues: [{name: a, children: [{name: b, parent: c}]}, {name: c}]",
        "queues.0.children.0.parent: is 'c', but 'b' stands among the children of 'a'",
        "leave parent out there, or move the queue",
    ),
    # numbers
    ("queues: [{name: a, limit: -1}]", "queues.0.limit: must be 0 or more, not -1", "leave it out where there is no"),
    ("queues: [{name: a, limit: none}]", "queues.0.limit: must be a whole number, not 'none'", "leave it out where"),
    ("queues: [{name: a, floor: '8'}]", "queues.0.floor: must be a whole number, not '8'", "write 8 without quotes"),
    ("queues: [{name: a, floor: true}]", "queues.0.floor: must be a whole number, not true", "leave it out where"),
    ("queues: [{name: a, limit: 1.5}]", "queues.0.limit: must be a whole number, not 1.5", "leave it out where"),
    ("queues: [{name: a, limit: 2147483648}]", "queues.0.limit: must be 2147483647 or less, not 2147483648", ""),
    ("queues: [{name: a, pending_max: -1}]", "queues.0.pending_max: must be 0 or more, not -1", "leave it out where"),
    ("queues: [{name: a, running_max: x}]", "queues.0.running_max: must be a whole number, not 'x'", "leave it out"),
    ("queues: [{name: a, weight: -1}]", "queues.0.weight: must be 0 or more, not -1", ""),
    ("queues: [{name: a, weight: 0.3}]", "queues.0.weight: must be a whole number, not 0.3", "weights count against"),
    ("queues: [{name: a, weight: }]", "queues.0.weight: must be a whole number, not null", ""),
    # bounds
    ("queues: [{name: a, floor: 5, limit: 3}]", "queues.0.floor: is 5, more than the limit of 3", "raise the limit"),
    (
        "queues: [{name: a, gpu_types: {h100: {floor: 5, limit: 3}}}]",
        "queues.0.gpu_types.h100.floor: is 5, more than the limit of 3",
        "raise the limit",
    ),
    (
        "queues: [{name: a, limit: 3, gpu_types: {h100: {floor: 2}, a100: {floor: 2}}}]",
        "queues.0.gpu_types: have floors of 4 together, more than the limit of 3 over all types",
        "raise the limit",
    ),
    (
        "queues: [{name: a, gpu_types: {h100: 5}}]",
        "queues.0.gpu_types: h100 is 5, and must be a mapping",
        "for example",
    ),
    ("queues: [{name: a, gpu_types: [h100]}]", "queues.0.gpu_types: must be a mapping of GPU types", "for example"),
    ("queues: [{name: a, gpu_types: {'': {}}}]", "queues.0.gpu_types: has ''; a GPU type is 1 to 40", ""),
    # words
    (
        "queues: [{name: a, order: strikt}]",
        "queues.0.order: must be one of best_effort, strict, not 'strikt'",
        "did you",
    ),
    ("queues: [{name: a, stop: paused}]", "queues.0.stop: must be one of none, pause, hold, not 'paused'", "did you"),
)


@pytest.mark.parametrize(("text", "told", "hint"), WRONG)
def test_what_is_wrong_is_told_with_its_place_and_what_was_meant(text: str, told: str, hint: str) -> None:
    """The sentence begins with the place, from which the command finds the line."""
    refused = read(text)
    assert isinstance(refused, Refused), refused
    assert refused.message.startswith(told)
    assert refused.hint.startswith(hint)
    assert bool(refused.hint) == bool(hint)


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Up to five; nobody mends a file a mistake at a time."""
    refused = read("queues: [" + ", ".join("{name: a, limit: -1}" for _ in range(7)) + "]")
    assert isinstance(refused, Refused)
    assert refused.message.count("must be 0 or more") == 5
    assert refused.message.endswith("; and 2 more")


@st.composite
def trees(draw: st.DrawFn) -> QueuesSet:
    """Any tree that may be set."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6))
    bound = st.none() | st.integers(0, 1 << 31 - 1)
    queues = []
    for number, name in enumerate(names):
        types = draw(st.lists(st.sampled_from(["", "a100", "h100 80gb"]), unique=True))
        bounds = [Bounds(gpu_type=t, borrowing_limit=draw(bound), lending_limit=draw(bound)) for t in sorted(types)]
        queue = Queue(
            name=TeamId(name),
            parent=draw(st.sampled_from(["", *names[:number]])),
            weight=draw(st.integers(0, 9)),
            bounds=tuple(one for one in bounds if one != Bounds(gpu_type=one.gpu_type)),
            order=draw(st.sampled_from(QueueOrder)),
            stop=draw(st.sampled_from(QueueStop)),
            pending_max=draw(bound),
            running_max=draw(bound),
        )
        queues.append(queue)
    return QueuesSet(at=AT, queues=ordered(queues))


@settings(max_examples=50)
@given(trees())
def test_what_is_shown_means_what_was_set(tree: QueuesSet) -> None:
    """Also through YAML: what `muster queue show --file` prints can be applied, and changes nothing."""
    assert read(yaml.safe_dump(queues_document(tree))) == tree


def test_the_typed_form_has_every_field_of_the_event() -> None:
    """A field that is added to a queue can be typed, and is in the schema that editors use."""
    typed = QueueTyped.model_fields.keys() - {"gpu_types", "children"} - BoundsTyped.model_fields.keys()
    assert typed == set(Queue.__struct_fields__) - {"bounds"}
    assert BoundsTyped.model_fields.keys() == set(Bounds.__struct_fields__) - {"gpu_type"}
    schema = json.dumps(queues_schema())
    assert all(f'"{name}"' in schema for name in QueueTyped.model_fields)


def test_whatever_is_sent_there_is_an_answer() -> None:
    """Things that are no document, deep ones and large ones included."""
    deep: Any = []
    for _ in range(3_000):
        deep = [deep]
    for raw in (None, 1, "x", b"x", {"queues": deep}, {"queues": [{"children": deep}]}, {"queues": [None]}, {1: 2}):
        assert isinstance(checked_queues(raw, AT), Refused)
