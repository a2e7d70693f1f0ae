"""What the cases of reasons are made of."""

from typing import Any, NamedTuple

from events.base import JobId
from tests.clusters import World


class Shown(NamedTuple):
    """A job that waits in some world, and what is said of it."""

    world: World
    job: JobId
    message: str
    says: dict[str, Any]
