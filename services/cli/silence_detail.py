"""How long nodes were silent, and what waiting for them cost, in few words."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.cli.table import duration

Data = Mapping[str, Any]


def _suspected(data: Data) -> str:
    return f"{data.get('node_id')}, silent for {duration(data.get('silent_s') or 0)}"


def _lost(data: Data) -> str:
    """`n1, silent for 2m 05s; given up after 2m 00s (cost): waiting 960 GPU-seconds, a restart 940`."""
    said = _suspected(data)
    if data.get("patience_s"):
        said += f"; given up after {duration(data['patience_s'])} ({data.get('patience')})"
    if data.get("restart_gpu_s"):
        said += f": waiting {data.get('waiting_gpu_s') or 0:.0f} GPU-seconds, a restart {data['restart_gpu_s']:.0f}"
    return said


def _clock(data: Data) -> str:
    ahead_s = data.get("ahead_s") or 0
    side = "behind" if ahead_s < 0 else "ahead of"
    return f"{data.get('node_id')}, {abs(ahead_s):.1f} s {side} the control plane's"


TOLD: Final[Mapping[str, Callable[[Data], str]]] = {
    "node.suspected": _suspected,
    "node.lost": _lost,
    "node.clock_judged": _clock,
}
