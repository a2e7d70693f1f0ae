"""The event of a test."""

import json
from datetime import UTC, datetime

from events.codec import TYPES, type_of
from services.webhooks.testing import TEST_TYPE, document_of_test


def test_it_is_a_cloudevent_of_a_type_of_its_own() -> None:
    """So that a receiver that takes it for something that happened has itself to blame."""
    document = json.loads(document_of_test("test-1", "wabc", at=datetime(2026, 1, 1, tzinfo=UTC), by="api:ada"))
    assert {"specversion", "id", "source", "type", "time", "data"} <= document.keys()
    assert (document["id"], document["type"]) == ("test-1", TEST_TYPE)
    assert datetime.fromisoformat(document["time"]) == datetime(2026, 1, 1, tzinfo=UTC)
    assert TEST_TYPE not in map(type_of, TYPES)
