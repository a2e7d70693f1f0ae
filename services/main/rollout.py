"""Replacing the agents of nodes in waves: drained, replaced by the operator's own command, seen to be well, used again.

It keeps no state: what is drained for an upgrade is known to the cluster, and whoever starts it again goes on there. It
stops by itself at the first node that does not come back, and when others than those it has in hand fall ill.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from pydantic_core import PydanticCustomError

from runtime.clock import Clock
from services.gate.durations import seconds

Node = dict[str, Any]  # a document of the API

OUTPUT_MAX: Final = 2_000  # characters of what a command said that are told when it fails
NODES_MAX: Final = 1_000  # at a time: each has its command run beside the others
WAVE: Final = re.compile(r"([0-9]{1,6})(%?)")
LOOK_EVERY_S: Final = 1.0
LAG_S: Final = 3.0  # between what an agent does and what the API shows
CAUSE: Final = "upgrade"


class Api(Protocol):
    """What a rollout asks of a cluster."""

    def nodes(self) -> list[Node]:
        """Every node that ever joined."""
        ...

    def policy(self) -> Mapping[str, Any]:
        """The policy as a document."""
        ...

    def drain(self, names: Sequence[str], reason: str, deadline: str) -> None:
        """These nodes are drained for an upgrade."""
        ...

    def undrain(self, names: Sequence[str], reason: str) -> None:
        """These nodes take work again."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done."""

    command: Sequence[str]  # replaces the agent of the node that `MUSTER_NODE` names
    names: frozenset[str] = frozenset()  # of the nodes; empty: all
    labels: Mapping[str, str] = field(default_factory=dict)  # that the nodes have
    wave: str = "1"  # nodes at a time: a number, or a part of all as 10%
    deadline: str = "1h"  # for what runs there
    deadline_s: float = 3_600.0  # the same
    within_s: float = 1_800.0  # that a node may take to be empty after its deadline, and to come back
    version: str = ""  # that the agents are to have; empty: any
    reason: str = "agents rollout"


class Before(NamedTuple):
    """What a node was before its agent was replaced."""

    epoch: int
    instance: str
    version: str
    sick: int  # GPUs


class Stopped(Exception):
    """The rollout stops: a sentence, and what to do."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def meant(nodes: Sequence[Node], plan: Plan) -> tuple[list[Node], list[str]]:
    """The nodes whose agents are to be replaced, those first that are drained for it already; and why others are not."""
    todo, passed = [], []
    for node in sorted(nodes, key=lambda node: str(node["node_id"])):
        if node.get("retired_at") or not _chosen(node, plan):
            continue
        drain = node.get("drain")
        if plan.version and node["agent_version"] == plan.version and not _ours(node):
            passed.append(f"{node['node_id']} has {plan.version} already")
        elif drain is not None and not _ours(node):
            passed.append(f"{node['node_id']} is drained ({drain['cause']}): {drain['reason'] or 'nobody said why'}")
        elif node["state"] != "up" and not _ours(node):
            passed.append(f"{node['node_id']} is {node['state']}")
        else:
            todo.append(node)
    return sorted(todo, key=lambda node: not _ours(node)), passed


def _chosen(node: Node, plan: Plan) -> bool:
    return (not plan.names or node["node_id"] in plan.names) and plan.labels.items() <= node["labels"].items()


def _ours(node: Node) -> bool:
    """Whether the node is drained for an upgrade, and for nothing else."""
    drain = node.get("drain")
    return drain is not None and drain["cause"] == CAUSE and not drain["window"]


def waves(todo: Sequence[Node], wave: str) -> Iterator[list[Node]]:
    """So many nodes at a time, at least one. Raises `ValueError` for what is neither a number nor a part."""
    found = WAVE.fullmatch(wave.strip())
    if found is None or not 0 < int(found[1]) <= (100 if found[2] else NODES_MAX):
        raise ValueError(f"--wave: must be a number of nodes, such as 5, or a part of them, such as 10%, not {wave!r}")
    size = max(1, int(found[1]) * len(todo) // 100 if found[2] else int(found[1]))
    for start in range(0, len(todo), size):
        yield list(todo[start : start + size])


def span_s(typed: object) -> float:
    """The seconds of `30m`. Raises `ValueError`."""
    try:
        return float(str(seconds(typed)))
    except PydanticCustomError as error:
        raise ValueError(f"a time {(error.context or {}).get('problem', 'is wrong')}") from error


def _now(node: Node) -> Before:
    return Before(node["epoch"], node["instance"], node["agent_version"], node["gpus_sick"])


def unwell(nodes: Sequence[Node], *, but: Sequence[str] = ()) -> list[str]:
    """The nodes that are not heard, or have GPUs that are out for what they showed; retired ones do not count."""
    return sorted(
        str(node["node_id"])
        for node in nodes
        if not node.get("retired_at")
        and node["node_id"] not in but
        and (node["state"] != "up" or node.get("gpus_sick"))
    )


class Rollout:
    """Goes through the waves."""

    def __init__(
        self, api: Api, plan: Plan, clock: Clock, tell: Callable[[str], None], done: Callable[[str], None]
    ) -> None:
        """What it does is told to `tell`, the name of each node that is done to `done`."""
        self._api = api
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._done = done
        self._ill_before = 0
        self._suspect_s = 0.0

    async def run(self) -> int:
        """How many agents were replaced. Raises `Stopped`."""
        nodes = self._api.nodes()
        todo, passed = meant(nodes, self._plan)
        for why in passed:
            self._tell(f"left alone: {why}")
        self._ill_before = len(unwell(nodes, but=[str(node["node_id"]) for node in todo if _ours(node)]))
        self._suspect_s = span_s(self._api.policy()["suspect_after"])
        parts = list(waves(todo, self._plan.wave))
        for number, part in enumerate(parts, 1):
            names = [str(node["node_id"]) for node in part]
            self._tell(f"wave {number} of {len(parts)}: {', '.join(names)}")
            await self._wave(names)
        return len(todo)

    async def _wave(self, names: list[str]) -> None:
        self._look(names)
        self._api.drain(names, self._plan.reason, self._plan.deadline)
        before = await self._drained(names)
        ended = dict(zip(names, await asyncio.gather(*map(self._replace, names)), strict=True))
        back = await self._back([name for name in names if not ended[name]], before)
        well = [node for node in back.values() if _ours(node)]
        if well:
            self._api.undrain([str(node["node_id"]) for node in well], self._plan.reason)
        for name, node in back.items():
            self._tell(f"{name} is back: agent {before[name].version or '?'} -> {node['agent_version'] or '?'}")
            self._done(name)
            if not _ours(node):
                self._tell(f"{name} stays drained: somebody else has drained it meanwhile")
        if bad := [name for name in names if name not in back]:
            failed = [f"{name}: {ended[name]}" for name in bad if ended[name]]
            silent = [name for name in bad if not ended[name]]
            told = [*failed, *(f"{name} did not come back in time" for name in silent)]
            hint = "they stay drained for the upgrade, the others were left alone: look at them, then start this again"
            raise Stopped("; ".join(told), hint)

    def _look(self, names: Sequence[str]) -> list[Node]:
        """The nodes as they are. Raises `Stopped` where more than before are unwell, beside those in hand."""
        nodes = self._api.nodes()
        ill = unwell(nodes, but=names)
        if len(ill) > self._ill_before:
            told = f"{len(ill)} other nodes are unwell, {self._ill_before} were before: {', '.join(ill[:10])}"
            raise Stopped(told, "nodes in hand stay drained for the upgrade: muster nodes; then start this again")
        return nodes

    async def _drained(self, names: Sequence[str]) -> dict[str, Before]:
        """Once all of them are empty: what they were. Raises `Stopped`."""
        limit_s = self._clock.monotonic() + self._plan.deadline_s + self._plan.within_s
        while True:
            nodes = {str(node["node_id"]): node for node in self._look(names) if node["node_id"] in names}
            busy = [name for name, node in nodes.items() if not (node["drain"] or {}).get("drained_at")]
            if not busy:
                return {name: _now(node) for name, node in nodes.items()}
            if self._clock.monotonic() > limit_s:
                told = f"{', '.join(busy)}: not empty in time"
                raise Stopped(told, "muster node NAME says what runs there; then start this again")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _replace(self, name: str) -> str:
        """The operator's command has run for the node; what went wrong, empty for nothing."""
        process = await asyncio.create_subprocess_exec(
            *self._plan.command,
            env={**os.environ, "MUSTER_NODE": name},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(self._plan.within_s):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"the command did not end within {self._plan.within_s:g} s"
        if not process.returncode:
            return ""
        last = output.decode(errors="replace").strip()[-OUTPUT_MAX:]
        return f"the command ended with {process.returncode}" + (f": {last}" if last else "")

    async def _back(self, names: Sequence[str], before: Mapping[str, Before]) -> dict[str, Node]:
        """Those of the nodes that are well again within the time. Raises `Stopped` where others fall ill."""
        began_s = self._clock.monotonic()
        back: dict[str, Node] = {}
        while len(back) < len(names) and (waited_s := self._clock.monotonic() - began_s) <= self._plan.within_s:
            for node in self._look(list(before)):
                name = str(node["node_id"])
                if name in names and self._is_back(node, before[name], waited_s):
                    back[name] = node
            if len(back) < len(names):
                await asyncio.sleep(LOOK_EVERY_S)
        return back

    def _is_back(self, node: Node, before: Before, waited_s: float) -> bool:
        """Whether an agent is heard that was not there before, and finds its GPUs clean.

        One of the same version in the same life of the node says nothing new: it is heard if it is not missed by the time
        that silence would be.
        """
        now = _now(node)
        clean = node["gpus_out"] <= node["gpus_sick"] <= before.sick
        if node["state"] != "up" or not clean or self._plan.version not in ("", now.version):
            return False
        return now._replace(sick=before.sick) != before or waited_s > self._suspect_s + LAG_S
