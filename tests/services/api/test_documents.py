"""Events as the API shows them: the document that the log holds, and three fields beside it."""

import json

from events.base import JobId, TeamId, Unreadable
from events.job import JobCancelRequested
from events.log.memory import MemoryLog
from runtime.clock import ManualClock
from services.api.documents import document, documents

CLOCK = ManualClock()


async def test_a_document_is_that_of_the_log_with_its_place() -> None:
    """CloudEvents attributes and data are as written; position, time of storing and who asked come on top."""
    log = MemoryLog("main", CLOCK.now)
    event = JobCancelRequested(at=CLOCK.now(), by="team:red", team=TeamId("red"), job_id=JobId("jx"), reason="«é»")
    position = await log.record([event])
    recorded = log.stretch()[0]
    assert document(recorded).startswith(recorded.document[:-1])  # byte for byte
    shown = json.loads(document(recorded))
    assert shown["data"] == {"team": "red", "job_id": "jx", "reason": "«é»"}
    assert (shown["specversion"], shown["type"]) == ("1.0", "musterbook.job.cancel_requested.v1")
    assert (shown["id"], shown["subject"]) == (recorded.id, "intake.red.jx")
    assert (shown["position"], shown["at"], shown["by"]) == (position, recorded.at.isoformat(), "team:red")
    assert json.loads(documents([recorded, recorded])) == [shown, shown]
    assert documents([]) == b"[]"


def test_what_cannot_be_read_is_shown_with_the_reason() -> None:
    """Also bytes that are no document at all."""
    log = MemoryLog("main", CLOCK.now)
    log.write_raw("intake.red.jx", b"\xff\x00")
    recorded = log.stretch()[0]
    assert isinstance(recorded.event, Unreadable)
    shown = json.loads(document(recorded))
    assert (shown["type"], shown["subject"]) == ("musterbook.unreadable", "intake.red.jx")
    assert shown["data"]["reason"]
