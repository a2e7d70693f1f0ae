"""The GPUs of a node in words."""

from datetime import datetime
from typing import Any

import pytest

from services.cli.gpus import print_gpus, what_returns

NOW = datetime.fromisoformat("2026-11-30T08:00:30+00:00")
AT = "2026-11-30T08:00:00+00:00"
SOUND: dict[str, Any] = {
    "slot": 1,
    "uuid": "GPU-2",
    "state": "cleaning",
    "run_id": "j-1",
    "health": None,
    "judged": None,
}
OUT: dict[str, Any] = {
    "slot": 0,
    "uuid": "GPU-1",
    "state": "free",
    "run_id": "",
    "health": {"action": "evict", "rule": "xid 79", "since": AT, "returns_by": ["reboot", "operator"]},
    "judged": {"action": "log", "rule": "xid 63", "at": AT, "held_back": True},
}


def test_each_gpu_says_whose_it_is_and_why_it_is_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what would return it; one that the node has no more is left out."""
    monkeypatch.setenv("COLUMNS", "200")
    print_gpus({"gpus": [OUT, SOUND, {**SOUND, "slot": 2, "state": "absent"}]}, NOW)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for part in ("out  ", "evict: xid 79, 30s ago", "reboot, operator", "xid 63: log, held back, 30s ago"):
        assert part in lines[2]
    for part in ("cleaning", "j-1", "sound"):
        assert part in lines[3]
    print_gpus({"gpus": [{**OUT, "health": None}]}, NOW)
    assert "held back: xid 63" in capsys.readouterr().out
    print_gpus({"gpus": []}, NOW)
    assert capsys.readouterr().out == ""


def test_what_a_person_has_to_do_is_said() -> None:
    """Of GPUs that no agent's reset returns; those that a reset returns, and those that are gone, call nobody."""
    resets = OUT | {"health": OUT["health"] | {"returns_by": ["reset", "operator"]}}
    node = {"node_id": "n1", "gpus": [OUT, SOUND, resets, OUT | {"slot": 5, "state": "held"}]}
    assert what_returns(node).endswith("once it is sound: muster node return n1 --gpu 0 --gpu 5")
    assert what_returns(node | {"gpus": [SOUND, resets, OUT | {"state": "absent"}]}) == ""
