"""The event that a test sends: nothing happened, and its type says so."""

from datetime import datetime
from typing import Final

import msgspec

TEST_TYPE: Final = "musterbook.webhook.test.v1"


def document_of_test(event_id: str, endpoint_id: str, *, at: datetime, by: str) -> bytes:
    """A CloudEvents document, as small as one can be."""
    return msgspec.json.encode(
        {
            "type": TEST_TYPE,
            "specversion": "1.0",
            "id": event_id,
            "source": "musterbook",
            "subject": f"webhook.{endpoint_id}",
            "time": at,
            "datacontenttype": "application/json",
            "authid": by,
            "data": {"endpoint_id": endpoint_id},
        }
    )
