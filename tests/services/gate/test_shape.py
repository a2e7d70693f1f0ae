"""What a document must be before its fields are looked at."""

from events.ask import RefusalCode, Refused
from services.gate.shape import DOCUMENT_BYTES_MAX, shaped


def test_a_mapping_is_taken_up_to_its_size() -> None:
    """To the byte, as JSON."""
    room = DOCUMENT_BYTES_MAX - len('{"a":""}')
    assert shaped({"a": "x" * room}, "things", "a", "") == {"a": "x" * room}
    large = shaped({"a": "x" * (room + 1)}, "things", "a", "")
    assert isinstance(large, Refused)
    assert (large.code, large.message) == (RefusalCode.TOO_LARGE, "things: has 262145 bytes, 262144 is the most")


def test_what_is_no_mapping_or_no_json_is_refused() -> None:
    """With an example where there is one."""
    nothing = shaped([], "things", "list", "for example …")
    assert isinstance(nothing, Refused)
    assert nothing.message == "things: the document must be a mapping with the field list, not []"
    assert nothing.hint == "for example …"
    for odd in ({"a": object()}, {"a": 10**5_000}):
        refused = shaped(odd, "things", "a", "")
        assert isinstance(refused, Refused)
        assert refused.message.startswith("things: cannot be written as JSON: ")
