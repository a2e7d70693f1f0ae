"""A log that is being put back: no log until all of it is there, and nobody writes to it before it goes on."""

from collections.abc import Iterable
from typing import Final

from events.log.streams import UNFINISHED
from events.subjects import Subjects, events_stream
from runtime.nats import Connection
from runtime.stream_copy import Saved, config_of, configure, delete, names

EVENTS_PREFIX: Final = "EVENTS_"
FIRST: Final = events_stream(1)


def unfinished(saved: Saved, cell: str) -> Saved:
    """The stream as it is put back: a chapter is shut, so whoever goes on does so in the next; the first says so."""
    name = str(saved.config["name"])
    if not name.startswith(EVENTS_PREFIX):
        return saved
    config = saved.config | {"subjects": [Subjects(cell).closing(int(name.removeprefix(EVENTS_PREFIX)))]}
    if name == FIRST:
        config["metadata"] = (saved.config.get("metadata") or {}) | {UNFINISHED: "1"}
    return saved._replace(config=config)


async def finish(connection: Connection) -> None:
    """All that was put back is a log. Raises `Fault`."""
    config = await config_of(connection, FIRST)
    config["metadata"].pop(UNFINISHED)
    await configure(connection, config)


async def clear_away(connection: Connection, wanted: Iterable[str]) -> None:
    """Nothing is there of a log that was put back in part, nor of the streams `wanted` beside it. Raises `Fault`.

    The first chapter goes last, for it is what says so.
    """
    there = await names(connection, "")
    if FIRST not in there or UNFINISHED not in ((await config_of(connection, FIRST)).get("metadata") or {}):
        return
    for name in reversed(there):
        if name != FIRST and (name.startswith(EVENTS_PREFIX) or name in wanted):
            await delete(connection, name)
    await delete(connection, FIRST)
