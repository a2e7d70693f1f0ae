"""What bytes are a report: those of an agent's own events, and nothing else."""

import pytest

from events.ask import Refused, Report
from services.gate.reports import decoded

RELEASE = b"""{"type":"musterbook.node.gpus_released.v1","at":"2026-01-01T00:00:00Z","node_id":"n","node_epoch":7,
"run_id":"jx-1","slots":3}"""


def test_a_report_is_read() -> None:
    """With the events that it holds, in order."""
    report = decoded(b'{"instance":"i","reports":[%b,%b]}' % (RELEASE, RELEASE))
    assert isinstance(report, Report)
    assert [one.node_id for one in report.reports] == ["n", "n"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b'{"instance":"i","reports":[],"team":"red"}',
        b'{"instance":"i","reports":[{"type":"musterbook.job.placed.v1"}]}',
        b'{"instance":"i","reports":[%b]}' % RELEASE.replace(b'"slots":3', b'"slots":0'),
        b'{"instance":"i","reports":[%b]}' % RELEASE.replace(b'"node_epoch":7', b'"node_epoch":"7"'),
        b'{"instance":"i","reports":[%b]}' % RELEASE.replace(b',\n"run_id":"jx-1"', b""),
    ],
)
def test_what_is_no_report_is_refused_with_the_place(payload: bytes) -> None:
    """Truncated, with unknown fields, of another kind, or with values that cannot be."""
    refused = decoded(payload)
    assert isinstance(refused, Refused)
    assert refused.message.startswith("the report cannot be read: ")
