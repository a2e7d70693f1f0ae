"""What differs between two documents, a line a thing."""

from services.gate.changes import lines


def test_what_comes_goes_and_changes_has_a_line() -> None:
    """In the order that was given; what is the same has none."""
    old = {"a": {"x": "1", "y": "2"}, "b": {"x": "1"}, "c": {"x": "1"}}
    new = {"a": {"x": "3", "z": "4"}, "c": {"x": "1"}, "d": {"x": "5", "y": "6"}}
    assert lines(old, new, ["d", "c", "b", "a"]) == [
        "+ d: x 5, y 6",
        "- b",
        "~ a: x 1 -> 3, y 2 -> none, z none -> 4",
    ]
    assert lines(old, old, old) == []
