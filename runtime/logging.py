"""Log lines: facts with fields, on stderr; JSON for machines, coloured text on a terminal."""

import logging
import sys
from typing import Final, cast

import structlog

from runtime.clock import SystemClock

LEVELS: Final = ("debug", "info", "warning", "error")


def _stamped(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event["at"] = SystemClock().now().isoformat(timespec="milliseconds")
    return event


def configure(*, level: str = "info", process: str = "", json: bool | None = None) -> None:
    """Every line from now on, ours and the libraries', goes to stderr in one form, with `process` in it.

    `json` None: JSON unless stderr is a terminal.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _stamped,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(pad_event_to=28)
    )
    exceptions = [structlog.processors.format_exc_info] if as_json else []
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *exceptions, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("asyncio", "nats", "httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    if process:
        structlog.contextvars.bind_contextvars(process=process)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """The logger of a module: `logger.info("event_name", field=value)`."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(name))
