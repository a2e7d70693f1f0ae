"""`muster log` and `muster log roll`."""

import json
from typing import Any, Final

from typer.testing import CliRunner

from services.cli.app import app
from tests.services.cli.network import Network

CLOSED: Final[dict[str, Any]] = {
    "chapter": 1,
    "position": (1 << 40) + 20_000_001,
    "records": 20_000_001,
    "first_at": "2026-11-29T08:00:00Z",
    "last_at": "2026-11-30T08:00:00.5Z",
    "size_bytes": 9_123_456_789,
    "digest": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
    "cause": "asked",
    "by": "api:jo",
}
OPEN: Final = CLOSED | {"chapter": 2, "position": (2 << 40) + 7, "records": 7} | dict.fromkeys(
    ("size_bytes", "digest", "cause")
) | {"by": ""}  # fmt: skip


def test_chapters_are_shown(network: Network) -> None:
    """Each on a line, with what proves it; the open one has nothing yet that does."""
    network.answers.append((200, {"position": OPEN["position"], "chapters": [CLOSED, OPEN]}))
    done = CliRunner().invoke(app, ["log", "--api-url", network.url], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    header, closed, opened = done.stdout.splitlines()
    assert header.split() == ["CHAPTER", "RECORDS", "BYTES", "FROM", "TO", "CLOSED", "DIGEST"]
    for part in ("20000001", "9123456789", "2026-11-29 08:00:00", "asked api:jo", "5f70bf18a0860070"):
        assert part in closed
    assert opened.split() == ["2", "7", "2026-11-29", "08:00:00", "2026-11-30", "08:00:00", "open"]
    assert "2 chapters; the log ends at 2:7" in done.stderr
    assert network.asked[0][0] == "/v1/log"

    as_json = CliRunner().invoke(app, ["log", "--json", "--api-url", network.url])
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [CLOSED, OPEN]


def test_the_log_is_rolled(network: Network) -> None:
    """The new position is on stdout; how long nothing was written is said."""
    rolled = {"chapter": 2, "closed": CLOSED["position"], "position": (2 << 40) + 1, "gap_s": 0.0312}
    network.answers.append((200, rolled))
    done = CliRunner().invoke(app, ["log", "roll", "--api-url", network.url])
    assert (done.exit_code, done.stdout) == (0, "2:1\n"), done.output
    assert "chapter 2 is open; the one before ends at 1:20000001; nothing was written for 31 ms" in done.stderr
    assert network.asked == [("/v1/log:roll", {})]
    assert network.headers[0]["muster-operator"]
    as_json = CliRunner().invoke(app, ["log", "roll", "--json", "--api-url", network.url])
    assert json.loads(as_json.stdout) == rolled
