"""Events as the API shows them: the CloudEvents document, with its place in the log and when that stored it."""

import json

from events.base import Recorded, Unreadable
from events.codec import Codec, Stamp, type_of


def document(codec: Codec, recorded: Recorded) -> bytes:
    """The JSON of an event, with `position`, `at` and `by` beside its CloudEvents attributes."""
    more = json.dumps(
        {"position": recorded.position, "at": recorded.at.isoformat(), "by": recorded.event.by}, ensure_ascii=False
    )
    return _written(codec, recorded)[:-1] + b"," + more.encode()[1:]


def documents(codec: Codec, records: list[Recorded]) -> bytes:
    """A JSON array of events."""
    return b"[" + b",".join(document(codec, recorded) for recorded in records) + b"]"


def _written(codec: Codec, recorded: Recorded) -> bytes:
    event = recorded.event
    if not isinstance(event, Unreadable):
        return codec.encode(event, Stamp(recorded.id))
    shown = {
        "specversion": "1.0",
        "id": recorded.id,
        "source": "musterbook",
        "type": type_of(Unreadable),
        "subject": event.subject,
        "time": recorded.at.isoformat(),
        "datacontenttype": "application/json",
        "data": {"named": event.named, "reason": event.reason},
    }
    return json.dumps(shown).encode()
