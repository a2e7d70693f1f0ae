"""Events as the API shows them: the CloudEvents document, with its place in the log and when that stored it."""

import json

from events.base import Recorded, Unreadable
from events.codec import type_of


def document(recorded: Recorded) -> bytes:
    """The JSON of an event as stored, with `position`, `at` and `by` beside its CloudEvents attributes."""
    more = json.dumps(
        {"position": recorded.position, "at": recorded.at.isoformat(), "by": recorded.event.by}, ensure_ascii=False
    )
    return _written(recorded)[:-1] + b"," + more.encode()[1:]


def documents(records: list[Recorded]) -> bytes:
    """A JSON array of events."""
    return b"[" + b",".join(document(recorded) for recorded in records) + b"]"


def _written(recorded: Recorded) -> bytes:
    event = recorded.event
    if not isinstance(event, Unreadable):
        return recorded.document.rstrip()
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
