"""Those who ask: teams submit and cancel, operators drain, grant and set documents; each asks until there is an answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, Protocol

from events.ask import Accepted, Answer, RefusalCode, Refused
from events.base import JobId, TeamId
from events.job import JobSubmitted
from services.gate.names import job_id_for
from tests.sim.machine import Plan
from tests.sim.network import Network, Silence
from tests.sim.store import Store
from tests.sim.trace import Trace

TEAMS: Final = (TeamId("red"), TeamId("green"), TeamId("blue"))
ACCOUNTS: Final = ("reds", "greens")
ASKS_MAX: Final = 40  # of one thing
AGAIN: Final = frozenset({RefusalCode.BUSY, RefusalCode.UNKNOWN})


class Doors(Protocol):
    """Where asks go."""

    async def ask(self, team: TeamId, payload: bytes) -> Answer:
        """What some gate says to a team. Raises `Silence` where there is none."""
        ...

    async def operate(self, payload: bytes) -> Answer:
        """What some gate says to an operator. Likewise."""
        ...


class Users:
    """All of them, with what they were told."""

    def __init__(self, store: Store, doors: Doors, trace: Trace, random: Random, plans: dict[str, Plan]) -> None:
        self.jobs: dict[JobId, TeamId] = {}  # that were accepted
        self.unanswered = 0
        self._store = store
        self._network: Network = store.network
        self._doors = doors
        self._trace = trace
        self._random = random
        self._plans = plans
        self._numbers = 0
        self._asks = 0

    def submit(self, gpus_max: int, each: int) -> None:
        """A team wants a job run."""
        self._numbers += 1
        number = self._numbers
        spec, plan = a_job(self._random, number, gpus_max, each)
        team = self._random.choice(TEAMS)
        self._network.background(self._submitted(team, f"key-{number}", spec, plan))

    def cancel(self, job_id: JobId) -> None:
        """Its team no longer wants it."""
        self._say(self.jobs[job_id], {"ask": "cancel", "job_id": job_id})

    def resume(self, job_id: JobId) -> None:
        """It may try again."""
        self._say(self.jobs[job_id], {"ask": "resume", "job_id": job_id})

    def operate(self, ask: str, **fields: Any) -> None:
        """An operator says something."""
        payload = json.dumps({"ask": ask, **fields}).encode()
        self._network.background(self._insist(ask, lambda: self._doors.operate(payload)))

    def give(self, account: str, credits_: str) -> None:
        """An operator grants credits, or corrects a balance."""
        self._asks += 1
        ask = "adjust" if credits_.startswith("-") else "grant"
        self.operate(ask, account=account, key=f"a-{self._asks}", credits=credits_, reason="simulated")

    def _say(self, team: TeamId, ask: dict[str, Any]) -> None:
        payload = json.dumps(ask).encode()
        self._network.background(self._insist(str(ask["ask"]), lambda: self._doors.ask(team, payload)))

    async def _submitted(self, team: TeamId, key: str, spec: dict[str, Any], plan: Plan) -> None:
        payload = json.dumps({"ask": "submit", "key": key, "spec": spec}).encode()
        self._plans[job_id_for(team, key)] = plan  # it may run before anybody is told that it was taken
        answer = await self._insist("submit", lambda: self._doors.ask(team, payload))
        if not isinstance(answer, Accepted):
            if isinstance(answer, Refused) and answer.code not in AGAIN:
                self._trace.broke("what is right is taken", f"{spec}: {answer}")
            return
        self.jobs[answer.job_id] = team
        record = await self._store.memory.read(answer.position)
        event = record.event if record else None
        if not isinstance(event, JobSubmitted) or (event.job_id, event.key) != (
            job_id_for(team, key),
            key,
        ):
            self._trace.broke("acknowledged is in the log", f"{key} of {team}: {answer}, there is {event}")

    async def _insist(self, what: str, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """The answer, asked for again and again with the same words."""
        for _ in range(ASKS_MAX):
            try:
                answer = await self._network.call("user", ask, within_s=6.0)
            except Silence:
                await asyncio.sleep(self._random.uniform(0.2, 2.0))
                continue
            if isinstance(answer, Refused) and answer.code is RefusalCode.INVALID:
                self._trace.broke("what is right is taken", f"{what}: {answer}")
            if isinstance(answer, Accepted) or answer.code not in AGAIN:
                code = "accepted" if isinstance(answer, Accepted) else f"{answer.code}: {answer.message}"
                self._trace.note("user", what, answer=code, job=getattr(answer, "job_id", ""))
                return answer
            await asyncio.sleep(self._random.uniform(0.2, 2.0))
        self.unanswered += 1
        return None


def a_job(random: Random, number: int, gpus_max: int, each: int) -> tuple[dict[str, Any], Plan]:
    """What is asked for, and what it will do."""
    gpus = min(gpus_max, random.choice((1, 1, 1, 2, 2, 3, 4, each, each, 2 * each, gpus_max)))
    runtime_s = random.choice((0.5, 2, 5, 10, 20, 40))
    plan = Plan(runtime_s=runtime_s)
    plan.start_s = random.choice((0.05, 0.1, 0.5, 2.0))
    plan.term_s = random.choice((0.02, 0.2, 1.0))
    spec: dict[str, Any] = {
        "name": f"job-{number}",
        "command": ["train"],
        "gpus": gpus,
        "priority": random.choice(("low", "normal", "normal", "high", "urgent")),
        "stop_grace": random.choice((1, 2, 5)),
        "preemptible": random.random() < 0.85,
        "on_lost": random.choice(("restart", "restart", "wait")),
        "retries_infrastructure": random.choice((1, 3, 6)),
    }
    if random.random() < 0.4:
        spec["checkpoint"] = {"grace": random.choice((1, 3))}
        plan.saves_every_s = random.choice((1.0, 4.0))
    if random.random() < 0.5:
        spec["max_runtime"] = int(runtime_s * random.choice((0.5, 2, 4))) + 2
    if gpus > 1 and random.random() < 0.3:
        spec["min_gpus"] = 1 if gpus <= each else each
    if random.random() < 0.2:
        spec["ranks"] = "per_node"
    if random.random() < 0.3:
        plan.fails, plan.code = random.choice((1, 2, 9)), random.choice((1, 2, 137))
        spec["retries_application"] = random.choice((0, 1, 3))
    if random.random() < 0.1:
        plan.stubborn = True
    if random.random() < 0.05:
        plan.refuses = random.choice((1, 2))
    if random.random() < 0.05:
        plan.unkillable_s = random.choice((3.0, 20.0, 90.0))
    return spec, plan
