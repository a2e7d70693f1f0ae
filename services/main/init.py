"""`python -m services.main.init`: founds the cell's log and makes its tables, once, before any part starts; then ends."""

import asyncio
import sys
from typing import Final

from events.log.streams import StreamSettings
from runtime.fault import Fault
from runtime.logging import configure, get_logger
from runtime.settings import CommonSettings
from services.main.found import found_log, migrate
from services.main.parts import read

logger = get_logger(__name__)

FAILED: Final = 1


class InitSettings(CommonSettings):
    """What the first start of a cell needs to know."""

    nats_user: str = "system"


async def init(settings: InitSettings) -> str:
    """The id of the log: its streams and the tables are there, made now or before. Raises `Fault`."""
    log_id = await found_log(settings.login, StreamSettings(cell=settings.cell, replicas=settings.replicas))
    await migrate(settings.postgres_dsn.get_secret_value())
    return log_id


def main() -> int:
    """The exit code: 0 when all is there."""
    try:
        settings = read(InitSettings)
        configure(process="init", level=settings.log_level)
        log_id = asyncio.run(init(settings))
    except Fault as fault:
        logger.error("init_failed", cause=fault.code, sentence=fault.sentence, hint=fault.hint)
        return FAILED
    logger.info("cell_ready", log_id=log_id, cell=settings.cell, replicas=settings.replicas)
    return 0


if __name__ == "__main__":
    sys.exit(main())
