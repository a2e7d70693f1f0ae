"""What befalls a cell beside the death of one part: several at once, a node that reboots, and what operators do meanwhile."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import httpx

from bench.rig import CLOCK, GPUS_PER_NODE, Rig, freeze, kill
from events.base import NodeId
from services.main.background import leftovers
from services.main.inject import Wish, wished

AGAIN_S: Final = 0.3
TABLES_FROZEN_S: Final = 20.0
READ_WITHIN_S: Final = 15.0
DRAINED_S: Final = 6.0
DEADLINE: Final = "3s"  # of a drain: what still runs then is stopped and moved
AGED: Final = frozenset({"muster-position", "muster-behind"})  # headers of an answer that was read from the tables


@dataclass
class Scene:
    """A cell, who speaks to its API, and what was wrong with its answers."""

    rig: Rig
    client: httpx.AsyncClient
    random: Random
    wrong: list[str] = field(default_factory=list)
    unhurt: list[NodeId] = field(default_factory=list)  # nodes whose GPUs have shown nothing yet

    async def said(self, path: str, body: dict[str, Any]) -> None:
        """The API has done it; it may be away for a while."""
        while True:
            with suppress(httpx.TransportError):
                answer = await self.client.post(path, json=body)
                if answer.is_success:
                    return
                if answer.status_code not in {503, 504}:
                    self.wrong.append(f"{path}: {answer.text}")
                    return
            await asyncio.sleep(AGAIN_S)

    async def killed(self, names: Iterable[str]) -> None:
        """All of these parts that were there were killed at once."""
        pids = [pid for name in names if (pid := self.rig.pid(name)) is not None]
        await asyncio.gather(*map(kill, pids))


async def gates(scene: Scene) -> None:
    """Nobody takes anything in."""
    await scene.killed(("api", "gate"))


async def servers(scene: Scene) -> None:
    """There is no log for some seconds."""
    await scene.killed(scene.rig.servers)


async def reboot(scene: Scene) -> None:
    """Agent, supervisors and ranks of a node are gone at once."""
    node_id = scene.random.choice(scene.rig.node_ids)
    pids = leftovers(scene.rig.folder / "nodes" / node_id)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # first all stand still: none sees another end
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


async def roll(scene: Scene) -> None:
    """Two operators close the chapter of the log."""
    await asyncio.gather(scene.said("/v1/log:roll", {}), scene.said("/v1/log:roll", {}))


async def sign(scene: Scene) -> None:
    """A GPU shows what a reset mends. Once a node: whatever comes again is judged more severely."""
    if scene.unhurt:
        node_id, gpu = scene.unhurt.pop(), scene.random.randrange(GPUS_PER_NODE)
        wished(node_id, Wish(signal="remap_pending", gpu=gpu), scene.rig.folder, scene.rig.folder)


async def drain(scene: Scene) -> None:
    """A node is drained with a deadline, and used again."""
    path = f"/v1/nodes/{scene.random.choice(scene.rig.node_ids)}"
    await scene.said(f"{path}/drain", {"reason": "trouble", "deadline": DEADLINE})
    await asyncio.sleep(DRAINED_S)
    await scene.said(f"{path}/undrain", {"reason": "trouble"})


async def tables(scene: Scene) -> None:
    """PostgreSQL stands still while the API is read: it says how old its answers are, or that it has none."""
    pid = scene.rig.pid("postgres")
    if pid is None:
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(freeze(pid, TABLES_FROZEN_S))
        until_s = CLOCK.monotonic() + TABLES_FROZEN_S
        while CLOCK.monotonic() < until_s:
            with suppress(httpx.TransportError):  # the API may be away too
                answer = await scene.client.get("/v1/jobs", timeout=READ_WITHIN_S)
                is_aged = answer.is_success and answer.headers.keys() >= AGED
                if not is_aged and (answer.status_code != 503 or answer.json()["code"] != "tables_away"):
                    scene.wrong.append(f"/v1/jobs: {answer.status_code} {answer.headers} {answer.text[:200]}")
            await asyncio.sleep(1.0)


Trouble = Callable[[Scene], Coroutine[Any, Any, None]]
TROUBLES: Final[dict[str, tuple[Trouble, int]]] = {  # each with how often it comes
    "gates killed": (gates, 1),
    "all of nats killed": (servers, 1),
    "node rebooted": (reboot, 2),
    "log rolled": (roll, 2),
    "gpu sign": (sign, 2),
    "node drained": (drain, 2),
    "tables frozen": (tables, 1),
}
