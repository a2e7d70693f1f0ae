"""Real faults on real servers: `python -m bench.faults [--seconds 60] [--seed 1] [--nodes 10] [--json]`.

A cell with three NATS servers, PostgreSQL, two control planes, two gates and agents with real processes takes jobs all
the time, while parts of it are killed and frozen at random, from a seed, GPUs show signs of trouble, and operators drain
nodes and roll the log (`bench/troubles.py`). Each fault has a probe: a one-GPU job that is submitted in that moment. Told is how long it took until the control plane decided again, and until the probe had
succeeded. At the end everything that was taken in must have ended as it may, no rank started twice, no GPU shared, every
GPU back, tables and log as they must be: by the same auditor that `muster verify` runs.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import httpx
from pydantic import SecretStr

from bench.ranks import RANK, SHARED, STARTS, noted
from bench.rig import CLOCK, CONTROLS, Rig, free_gpus, freeze, kill, quiet
from bench.troubles import TROUBLES, Scene
from events.base import START, Recorded
from events.head import LeadershipTaken, RoundDecided
from events.job import JobCancelled, JobFailed, JobSucceeded, JobTimedOut
from events.log.port import LogFault
from events.log.wire import WireReader
from runtime.settings import ReaderSettings
from services.main.tables import lines_of, verified_by

SETTLED_WITHIN_S: Final = 120.0
EVERY_S: Final = 0.3  # between two jobs
PROBED_WITHIN_S: Final = 90.0
TEAM: Final = {"Muster-Team": "default"}
ENDS: Final = (JobSucceeded, JobFailed, JobCancelled, JobTimedOut)
# How often each is hit; a name ending in * stands for any one of its kind.
TARGETS: Final = {
    "node-*": 6,
    "control-*": 4,
    "leader": 4,
    "nats-*": 2,
    "postgres": 1,
    "api": 2,
    "gate": 2,
    "projector": 1,
}
FROZEN_S: Final = (0.3, 12.0)
FROZEN_LONG_S: Final = 65.0  # once, of the leader: by then a successor has long decided


class Asked(NamedTuple):
    """A job that was taken in, and how it may end."""

    gpus: int
    outcomes: frozenset[type]


@dataclass
class Hit:
    """A fault, and what it took until all was well again."""

    at: datetime
    what: str
    decided_s: float | None = None  # until the control plane decided again
    probed_s: float | None = None  # until a job submitted at that moment had succeeded


@dataclass
class Watch:
    """What the log says, as it grows."""

    decided: list[datetime] = field(default_factory=list)  # when rounds were
    leader: str = ""  # the control plane that decides
    reigns: int = 0
    ended: dict[str, type] = field(default_factory=dict)

    async def follow(self, reader: WireReader) -> None:
        """Never returns."""
        position = START
        while True:
            with suppress(LogFault, OSError):
                async with aclosing(reader.follow(position)) as following:  # type: ignore[type-var]  # a generator
                    async for stretch in following:
                        for recorded in stretch:
                            self._see(recorded)
                            position = recorded.position

    def _see(self, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, RoundDecided):
            self.decided.append(recorded.at)
        elif isinstance(event, LeadershipTaken):
            self.leader = event.instance.rpartition("-")[0]
            self.reigns += 1
        elif isinstance(event, ENDS):
            self.ended[event.job_id] = type(event)


class Crowd:
    """Users who submit jobs under one key until they are taken, and sometimes cancel one."""

    def __init__(self, rig: Rig, client: httpx.AsyncClient, random: Random) -> None:
        self.taken: dict[str, Asked] = {}
        self._rig = rig
        self._client = client
        self._random = random
        self._number = 0

    async def submit_for_ever(self, every_s: float) -> None:
        """Never returns; whoever is being answered when it is cancelled has asked in vain."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._submit())
                await asyncio.sleep(every_s)

    async def probe(self) -> str:
        """The id of a one-GPU job that ends at once."""
        return await self._taken({"gpus": 1, "priority": "urgent"}, 0.0, 0, frozenset({JobSucceeded}))

    async def _submit(self) -> None:
        random = self._random
        code = 3 if random.random() < 0.1 else 0
        outcomes: set[type] = {JobFailed} if code else {JobSucceeded}
        cancelled = random.random() < 0.1
        gpus = random.choice((1, 1, 1, 1, 2, 2, 3, 4, 6, 8, 12))
        shape: dict[str, Any] = {"gpus": gpus, "on_lost": random.choice(("restart", "restart", "wait"))}
        whole = frozenset(outcomes | ({JobCancelled} if cancelled else set()))
        job_id = await self._taken(shape, random.choice((0.2, 0.5, 1, 3)), code, whole)
        if cancelled:
            await asyncio.sleep(random.choice((0, 0.05, 0.5)))
            await self._said(f"/v1/jobs/{job_id}:cancel", {})

    async def _taken(self, shape: dict[str, Any], sleep_s: float, code: int, outcomes: frozenset[type]) -> str:
        self._number += 1
        name = f"job-{self._number}"
        script = RANK.format(folder=self._rig.folder, sleep_s=sleep_s, code=code)
        spec = {"name": name, "command": ["sh", "-c", script], "stop_grace_s": 1, "retries_infrastructure": 100}
        body = {"key": f"key-{self._number}", "spec": spec | shape}
        job_id = str((await self._said("/v1/jobs", body))["job_id"])
        self.taken[job_id] = Asked(shape["gpus"], outcomes)
        return job_id

    async def _said(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of an API that may be away for a while, or not know what became of what it was asked."""
        while True:
            with suppress(httpx.TransportError):
                answer = await self._client.post(path, json=body, headers=TEAM)
                if answer.is_success:
                    said: dict[str, Any] = answer.json()
                    return said
                if answer.status_code not in {503, 504}:
                    raise AssertionError(answer.text)
            await asyncio.sleep(0.2)


class Chaos:
    """Hits one part after the other, and waits for none to recover before it hits the next."""

    def __init__(self, scene: Scene, crowd: Crowd, watch: Watch, random: Random) -> None:
        self.hits: list[Hit] = []
        self._scene = scene
        self._rig = scene.rig
        self._crowd = crowd
        self._watch = watch
        self._random = random
        self._frozen: set[str] = set()

    async def run(self, seconds: float) -> None:
        """Faults for so long; returns when the last has its figures."""
        began_s = CLOCK.monotonic()
        long_at_s = began_s + seconds / 3
        async with asyncio.TaskGroup() as group:
            while CLOCK.monotonic() < began_s + seconds:
                await asyncio.sleep(self._random.uniform(0.5, 5.0))
                long = seconds > 3 * FROZEN_LONG_S and CLOCK.monotonic() >= long_at_s
                long_at_s = float("inf") if long else long_at_s
                target = "leader" if long else self._target()
                if target in TROUBLES:
                    group.create_task(self._trouble(target))
                else:
                    group.create_task(self._hit(target, FROZEN_LONG_S if long else 0.0))

    def _target(self) -> str:
        weights = TARGETS | {name: often for name, (_, often) in TROUBLES.items()}
        return self._random.choices([*weights], [*weights.values()])[0]

    async def _trouble(self, name: str) -> None:
        hit = Hit(CLOCK.now(), name)
        self.hits.append(hit)
        async with asyncio.TaskGroup() as group:
            group.create_task(TROUBLES[name][0](self._scene))
            group.create_task(self._measure(hit))

    async def _hit(self, target: str, frozen_s: float) -> None:
        name = self._name(target)
        pid = self._rig.pid(name)
        if pid is None or name in self._frozen or self._is_second_server(name):
            return  # it is away already
        if not frozen_s and self._random.random() < 0.4:
            frozen_s = self._random.uniform(*FROZEN_S)
        hit = Hit(CLOCK.now(), f"{target.rstrip('-*')} {'frozen' if frozen_s else 'killed'}")
        self.hits.append(hit)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._freeze(name, pid, frozen_s) if frozen_s else kill(pid))
            group.create_task(self._measure(hit))

    async def _freeze(self, name: str, pid: int, seconds: float) -> None:
        self._frozen.add(name)
        await freeze(pid, seconds)
        self._frozen.discard(name)

    def _is_second_server(self, name: str) -> bool:
        """With one of three nothing is promised."""
        servers = self._rig.servers
        return name in servers and any(one in self._frozen or self._rig.pid(one) is None for one in servers)

    def _name(self, target: str) -> str:
        match target:
            case "leader":
                return self._watch.leader
            case "node-*":
                return self._random.choice(self._rig.node_ids)
            case "control-*":
                return self._random.choice(CONTROLS)
            case "nats-*":
                return self._random.choice(self._rig.servers)
            case _:
                return target

    async def _measure(self, hit: Hit) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PROBED_WITHIN_S):
                began_s = CLOCK.monotonic()
                job_id = await self._crowd.probe()
                while job_id not in self._watch.ended:  # noqa: ASYNC110 - another task sees the log
                    await asyncio.sleep(0.02)
                hit.probed_s = CLOCK.monotonic() - began_s
        hit.decided_s = next(self._after(hit), None)

    def _after(self, hit: Hit) -> Iterator[float]:
        return ((at - hit.at).total_seconds() for at in self._watch.decided if at > hit.at)


async def measure(folder: Path, *, seconds: float, nodes: int, seed: int) -> dict[str, Any]:
    """The figures, and under `wrong` all that was not as it must be."""
    quiet()
    rig, watch = Rig(folder, nodes), Watch()
    async with rig.running(), httpx.AsyncClient(base_url=rig.url, timeout=5.0) as client:
        login = rig.nats.login("reader")
        reader = WireReader(login.urls, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix)
        crowd = Crowd(rig, client, Random(seed + 1))
        scene = Scene(rig, client, Random(seed + 2), unhurt=[*rig.node_ids])
        chaos = Chaos(scene, crowd, watch, Random(seed))
        following = asyncio.create_task(watch.follow(reader))
        submitting = asyncio.create_task(crowd.submit_for_ever(EVERY_S))
        began_s = CLOCK.monotonic()
        try:
            await chaos.run(seconds)
            submitting.cancel()
            settled_s = await _settled(rig, crowd, watch, client)
        finally:
            following.cancel()
            submitting.cancel()
            await asyncio.gather(following, submitting, return_exceptions=True)
            reader.close()
        wrong = [*_ended_badly(rig.folder, crowd.taken, watch.ended), *await _broken(rig)]
        unsettled = [] if settled_s is not None else [f"not at rest after {SETTLED_WITHIN_S:g} s"]
    return {
        "machine": f"{os.cpu_count()} cores",
        "seconds": round(CLOCK.monotonic() - began_s),
        "faults": len(chaos.hits),
        "jobs": len(crowd.taken),
        "leaders": watch.reigns,
        "restarts": rig.restarts,
        "settled_s": settled_s,
        "decided_s": _spread([hit.decided_s for hit in chaos.hits]),
        "probed_s": _spread([hit.probed_s for hit in chaos.hits]),
        "by_fault": _by_fault(chaos.hits),
        "wrong": unsettled + scene.wrong + wrong,
    }


async def _settled(rig: Rig, crowd: Crowd, watch: Watch, client: httpx.AsyncClient) -> float | None:
    """Seconds until every job had ended and every GPU was free; None where that did not come."""
    began_s = CLOCK.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLED_WITHIN_S):
            while crowd.taken.keys() - watch.ended.keys() or await free_gpus(client) != rig.gpus:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            return round(CLOCK.monotonic() - began_s, 1)
    return None


def _ended_badly(folder: Path, taken: dict[str, Asked], ended: dict[str, type]) -> Iterator[str]:
    """Jobs that did not end as they may; ranks that started twice in one attempt, or shared a GPU."""
    for job_id, asked in taken.items():
        if (end := ended.get(job_id)) not in asked.outcomes:
            yield f"{job_id}: {end.__name__ if end else 'has not ended'}"
    if (shared := folder / SHARED).exists():
        yield f"GPUs were shared: {shared.read_text()}"
    for job_id, attempts in noted(folder / STARTS).items():
        for attempt, ranks in attempts.items():
            if len(set(ranks)) < len(ranks):
                yield f"{job_id}: attempt {attempt} started {ranks}"


async def _broken(rig: Rig) -> list[str]:
    """What the auditor, and the comparison of the tables with the log, find."""
    login = rig.nats.login("reader")
    settings = ReaderSettings(
        nats_urls=login.urls,
        nats_user=login.user,
        nats_password=SecretStr(login.password),
        postgres_dsn=SecretStr(rig.postgres.dsn),
        replicas=len(rig.servers),
    )
    verified, records, findings = await verified_by(settings)
    return [] if verified.same and not findings else lines_of(verified, records, findings)


def _spread(seconds: Sequence[float | None]) -> dict[str, float | int]:
    """Of those that came: how many, the median, the 99th of 100 and the longest; and how many never came."""
    came = sorted(one for one in seconds if one is not None)
    cuts = quantiles(came, n=100, method="inclusive") if len(came) > 1 else came * 99
    if not came:
        return {"n": 0, "never": len(seconds)}
    told = {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2), "max": round(came[-1], 2)}
    return {"n": len(came), **told, "never": len(seconds) - len(came)}


def _by_fault(hits: Sequence[Hit]) -> dict[str, Any]:
    counts = Counter(hit.what for hit in hits)
    return {
        what: {
            "decided_s": _spread([hit.decided_s for hit in hits if hit.what == what]),
            "probed_s": _spread([hit.probed_s for hit in hits if hit.what == what]),
        }
        for what in sorted(counts)
    }


def main() -> int:
    """Print the figures; 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="muster-faults-") as name:
        figures = asyncio.run(measure(Path(name), seconds=options.seconds, nodes=options.nodes, seed=options.seed))
    sys.stdout.write(json.dumps(figures) if options.json else "\n".join(f"{k:12} {v}" for k, v in figures.items()))
    sys.stdout.write("\n")
    return int(bool(figures["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
