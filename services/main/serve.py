"""`muster serve NAME…` and `muster agent`: parts of the control plane in one process, until it is told to stop."""

import gc
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import uvloop

import agent.start
from events.log.port import LogFault
from runtime.fault import Fault
from runtime.logging import configure, get_logger
from runtime.settings import AgentSettings, CommonSettings
from runtime.stopping import Stop, run_until_stopped, stop_on_signals
from services.main import parts
from services.main.parts import first_of, read

logger = get_logger(__name__)

Part = Callable[[Stop], Coroutine[Any, Any, None]]  # runs until the stop, or until it is cancelled

PARTS: Final[Mapping[str, Part]] = {
    "control": parts.control,
    "dispatcher": parts.dispatcher,
    "gate": parts.gate,
    "api": parts.api,
    "projector": parts.projector,
    "webhooks": parts.webhooks,
}
COLLECT_EVERY: Final = (50_000, 20, 50)  # allocations of the youngest, then of each older generation
TOGETHER: Final = frozenset({"control", "dispatcher"})  # one fold serves both


def run_parts(names: tuple[str, ...]) -> int:
    """The exit code of a process that runs these parts. Raises `Fault`."""
    settings = read(CommonSettings)
    configure(process="+".join(names), level=settings.log_level)
    # The fold is large and has no cycles: looking through it for some at every turn would take a tenth of the time.
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)
    return uvloop.run(_run(names))  # half the time of the loop that Python brings


async def _run(names: tuple[str, ...]) -> int:
    chosen = [PARTS[name] for name in names if name not in TOGETHER]
    if TOGETHER.issubset(names):
        chosen.insert(0, parts.control_and_dispatcher)
    else:
        chosen += [PARTS[name] for name in names if name in TOGETHER]
    with stop_on_signals() as stop:
        logger.info("process_started", parts=names, pid=os.getpid())
        try:
            await run_until_stopped(stop, *(part(stop) for part in chosen))
        except* Fault as faults:
            raise first_of(faults) from faults
        except* LogFault as faults:
            first = first_of(faults)
            raise Fault(first.code, str(first), first.hint) from faults
    return 1 if stop.failed else 0


def run_agent() -> int:
    """The exit code of a node's agent. Raises `Fault`."""
    settings = read(AgentSettings)
    configure(process="agent", level=settings.log_level)
    try:
        agent.start.main(settings, os.environ)
    except* Fault as faults:
        raise first_of(faults) from faults
    return 0
