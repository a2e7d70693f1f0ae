"""An event in few words: what a line of a timeline, or of `muster events`, has room for."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.cli import credit_detail, silence_detail
from services.cli.table import counted, parse_time

NAMED_MAX: Final = 8  # nodes or runs that a line names; of the rest, how many
DETAILS: Final = (
    "run_id",
    "node_id",
    "gpu_uuid",
    "signal",
    "code",
    "ended",
    "action",
    "rule",
    "held_back",
    "means",
    "window",
    "starts",
    "ends",
    "deadline",
    "cause",
    "category",
    "reason",
    "exit_code",
    "rank",
    "not_before",
    "held",
    "message",
)


def short_type(event: dict[str, Any]) -> str:
    """`job.placed` of `musterbook.job.placed.v1`."""
    return str(event["type"]).removeprefix("musterbook.").rpartition(".v")[0] or str(event["type"])


def detail(event: dict[str, Any]) -> str:
    """What a line has room for of the event's data."""
    data = event.get("data") or {}
    said = TOLD.get(short_type(event), _fields)(data)
    if event.get("by") and event["by"] != f"node:{data.get('node_id')}":  # a node's report: who else
        said = f"{said} by {event['by']}".lstrip()
    return said


def _fields(data: Mapping[str, Any]) -> str:
    """Those that are set, by name, and the nodes."""
    parts = [f"{name}={data[name]}" for name in DETAILS if data.get(name) not in {None, "", 0, -1}]
    return " ".join([*parts, *_where(data)])


def _where(data: Mapping[str, Any]) -> list[str]:
    """`on node-1, node-2`, if the event names shares: arrays of node, epoch, slots."""
    shares = data.get("shares")
    return [f"on {_names([share[0] for share in shares])}"] if isinstance(shares, list) and shares else []


def _names(names: list[Any]) -> str:
    """The first few of them, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(map(str, names[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def _gpus(data: Mapping[str, Any]) -> str:
    number = sum(int(share[2]).bit_count() for share in data.get("shares") or ())
    return f"{number} GPU{'s' if number != 1 else ''}"


def _start(data: Mapping[str, Any]) -> str:
    at = parse_time(data.get("start"))
    return f"start by {at:%Y-%m-%d %H:%M:%S} UTC" if at else "no time can be said yet"


def _earmarked(data: Mapping[str, Any]) -> str:
    """`40 GPUs set aside on n1, n2; stopping a, b, c`."""
    victims = data.get("victims") or []
    doing = "moving" if data.get("moved") else "stopping"
    stops = f"; {doing} {_names(victims)}" if victims else ""
    return " ".join([f"{_gpus(data)} set aside", *_where(data)]) + stops


def _promised(data: Mapping[str, Any]) -> str:
    return " ".join([_gpus(data), *_where(data)]) + f"; {_start(data)}"


def _moved(data: Mapping[str, Any]) -> str:
    return f"{data.get('cause')}: {_promised(data)}"


def _proposed(data: Mapping[str, Any]) -> str:
    moves = data.get("moves") or []
    moved = [move.get("run_id") if isinstance(move, dict) else move[0] for move in moves]
    return " ".join([_gpus(data), *_where(data)]) + f" would be free if these moved: {_names(moved)}"


def _admitted(data: Mapping[str, Any]) -> str:
    return "beyond what its team is entitled to now" if data.get("borrowing") else ""


def _saved(data: Mapping[str, Any]) -> str:
    return f"checkpoint {data.get('number')} of {data.get('run_id')} is safe"


def _described(data: Mapping[str, Any]) -> str:
    labels = [f"{name}={value}" for name, value in (data.get("labels") or {}).items()]
    taints = data.get("taints") or []
    return "; ".join(part for part in (" ".join(labels), f"taints {_names(taints)}" if taints else "") if part)


def _queues(data: Mapping[str, Any]) -> str:
    return counted(len(data.get("queues") or ()), "queue")


TOLD: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "job.gpus_earmarked": _earmarked,
    "job.start_promised": _promised,
    "job.promise_moved": _moved,
    "job.consolidation_proposed": _proposed,
    "job.admitted": _admitted,
    "node.checkpoint_saved": _saved,
    "node.described": _described,
    "queues.set": _queues,
    **credit_detail.TOLD,
    **silence_detail.TOLD,
}
