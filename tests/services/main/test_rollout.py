"""Agents are replaced in waves: over the real fold and its rounds, with commands that are real processes."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from events.base import NodeId
from events.fleet import DrainCause
from events.operator import NodeDrainAsked, NodeUndrainAsked
from projections.cluster.node import Node, NodeState
from runtime.clock import SystemClock
from services.main import rollout
from services.main.rollout import Plan, Rollout, Stopped, meant, span_s, unwell, waves
from tests.clusters import World

REJOINS = 'import os, pathlib, sys; pathlib.Path(sys.argv[1], os.environ["MUSTER_NODE"]).touch()'
FAILS = (
    'import os, sys; print("no way to", os.environ["MUSTER_NODE"]); sys.exit(os.environ["MUSTER_NODE"] == "n2" and 3)'
)


class Site:
    """A cluster as the API shows it. A node whose file is in the folder joins anew when next looked at."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.world = World(dict.fromkeys(names, 8))
        self.folder = folder
        self.lost: set[str] = set()
        self.drained: list[list[str]] = []

    def nodes(self) -> list[dict[str, Any]]:
        """Every node, once rounds have said what there is to say."""
        for file in self.folder.iterdir():
            file.unlink()
            self.world.join(file.name, 8)
        self.world.wait(1)
        while self.world.round({NodeId(name): 10_000.0 for name in self.lost}):
            pass
        return [document(node) for node in self.world.cluster.nodes.values()]

    def policy(self) -> Mapping[str, Any]:
        """With little patience."""
        return {"suspect_after": 0.2}

    def drain(self, names: Sequence[str], reason: str, deadline: str) -> None:
        """As the gate would write it."""
        self.drained.append(list(names))
        for name in names:
            at = self.world.at
            due = at + timedelta(seconds=span_s(deadline))
            self.world.add(
                NodeDrainAsked(at=at, node_id=NodeId(name), reason=reason, deadline=due, cause=DrainCause.UPGRADE)
            )

    def undrain(self, names: Sequence[str], reason: str) -> None:
        """Likewise."""
        for name in names:
            self.world.add(NodeUndrainAsked(at=self.world.at, node_id=NodeId(name), reason=reason))

    def standing(self) -> dict[str, str]:
        """The causes for which nodes are drained."""
        nodes = self.world.cluster.nodes.values()
        return {node.node_id: node.fitness.drain.cause.value for node in nodes if node.fitness.drain is not None}


def document(node: Node) -> dict[str, Any]:
    """What of the API's document a rollout reads."""
    drain = node.fitness.drain
    shown = None
    if drain is not None:
        done = drain.done_at.isoformat() if drain.done_at else None
        shown = {"cause": drain.cause.value, "reason": drain.reason, "window": drain.window, "drained_at": done}
    return {
        "node_id": node.node_id,
        "state": node.state.value,
        "epoch": node.epoch,
        "instance": node.instance,
        "agent_version": "1.0",
        "labels": node.labels,
        "drain": shown,
        "retired_at": None,
        "gpus_out": 8 - node.pool.bit_count(),
        "gpus_sick": node.sick.bit_count(),
        "runs": len(node.held),
    }


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are looked at often."""
    monkeypatch.setattr(rollout, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(rollout, "LAG_S", 0.1)


def run(site: Site, script: str, **said: Any) -> tuple[list[str], list[str]]:
    """The nodes that were done, and what was told. Raises `Stopped`."""
    plan = Plan(command=(sys.executable, "-I", "-c", script, str(site.folder)), deadline="1m", deadline_s=60.0, **said)
    done: list[str] = []
    told: list[str] = []
    try:
        asyncio.run(Rollout(site, plan, SystemClock(), told.append, done.append).run())
    except Stopped as stopped:
        stopped.args = (stopped.args[0], done)
        raise
    return done, told


def test_waves_are_done_one_after_the_other(tmp_path: Path) -> None:
    """Each is drained, replaced and used again before the next is touched; what others have drained is left alone."""
    site = Site(tmp_path, "n1", "n2", "n3", "n4")
    node = site.world.cluster.nodes[NodeId("n3")]
    site.world.add(NodeDrainAsked(at=site.world.at, node_id=node.node_id, reason="fan"))
    epochs = {name: node.epoch for name, node in site.world.cluster.nodes.items()}

    done, told = run(site, REJOINS, wave="2", within_s=20.0)

    assert done == ["n1", "n2", "n4"]
    assert site.drained == [["n1", "n2"], ["n4"]]
    assert site.standing() == {"n3": "operator"}
    now = {name: node.epoch for name, node in site.world.cluster.nodes.items()}
    assert {name for name in now if now[name] != epochs[name]} == {"n1", "n2", "n4"}
    assert "left alone: n3 is drained (operator): fan" in told


def test_an_agent_that_says_nothing_new_is_back_when_it_is_not_missed(tmp_path: Path) -> None:
    """Of the same version, in the same life of its node."""
    assert run(Site(tmp_path, "n1"), "", within_s=20.0)[0] == ["n1"]


def test_it_stops_where_a_command_fails_and_goes_on_there(tmp_path: Path) -> None:
    """Of its wave the others are used again; the rest is left alone; started again, it begins with the one that failed."""
    site = Site(tmp_path, "n1", "n2", "n3")
    with pytest.raises(Stopped, match="n2: the command ended with 3: no way to n2") as stopped:
        run(site, FAILS, wave="2", within_s=20.0)
    assert stopped.value.args[1] == ["n1"]
    assert site.standing() == {"n2": "upgrade"}
    assert site.drained == [["n1", "n2"]]

    assert run(site, REJOINS, within_s=20.0)[0] == ["n2", "n1", "n3"]
    assert site.standing() == {}


def test_it_stops_where_a_node_does_not_come_back(tmp_path: Path) -> None:
    """It was lost: its silence is what is seen."""
    site = Site(tmp_path, "n1", "n2")
    site.lost = {"n1"}
    todo, passed = meant(site.nodes(), Plan(command=()))
    assert [node["node_id"] for node in todo] == ["n2"]
    assert passed == ["n1 is lost"]
    site = Site(tmp_path, "n1", "n2")
    lose = site.drain

    def drain(names: Sequence[str], reason: str, deadline: str) -> None:
        lose(names, reason, deadline)
        site.lost = set(names)

    site.drain = drain  # type: ignore[method-assign]  # it is lost as its command runs
    with pytest.raises(Stopped, match="n1 did not come back in time"):
        run(site, "", within_s=0.5)
    assert site.standing() == {"n1": "upgrade"}


def test_it_stops_where_others_fall_ill(tmp_path: Path) -> None:
    """However well its own nodes are; what was ill before does not count."""
    site = Site(tmp_path, "n1", "n2", "n3", "n4")
    site.lost = {"n4"}
    site.nodes()
    shown = site.nodes

    def nodes() -> list[dict[str, Any]]:
        site.lost = {"n4", "n3"} if site.drained else {"n4"}
        return shown()

    site.nodes = nodes  # type: ignore[method-assign]
    with pytest.raises(Stopped, match="2 other nodes are unwell, 1 were before: n3, n4"):
        run(site, REJOINS, within_s=20.0)
    assert site.drained == [["n1"]]


def test_who_is_meant() -> None:
    """By name, by label, without those that have the version; those in hand first."""
    cluster = World({"n1": 8, "n2": 8, "n3": 8}).cluster
    known = [document(node) | {"labels": {"rack": node.node_id[-1]}} for node in cluster.nodes.values()]
    known[2]["drain"] = {"cause": "upgrade", "window": "", "reason": "", "drained_at": None}
    names = [node["node_id"] for node in meant(known, Plan(command=()))[0]]
    assert names == ["n3", "n1", "n2"]
    assert [n["node_id"] for n in meant(known, Plan(command=(), names=frozenset({"n2"})))[0]] == ["n2"]
    assert [n["node_id"] for n in meant(known, Plan(command=(), labels={"rack": "1"}))[0]] == ["n1"]
    todo, passed = meant(known, Plan(command=(), version="1.0"))
    assert [node["node_id"] for node in todo] == ["n3"]
    assert passed == ["n1 has 1.0 already", "n2 has 1.0 already"]
    assert unwell([known[0] | {"gpus_sick": 1}, known[1] | {"state": NodeState.SUSPECT.value}]) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("wave", "sizes"),
    [("1", [1] * 5), ("2", [2, 2, 1]), ("40%", [2, 2, 1]), ("1%", [1] * 5), ("100%", [5]), ("9", [5])],
)
def test_waves_are_numbers_or_parts(wave: str, sizes: list[int]) -> None:
    """At least one node."""
    assert [len(part) for part in waves([{}] * 5, wave)] == sizes


@pytest.mark.parametrize("wave", ["0", "0%", "101%", "-1", "some", "", "1.5"])
def test_what_is_neither_is_said(wave: str) -> None:
    """As it was typed."""
    with pytest.raises(ValueError, match="--wave: must be a number of nodes"):
        list(waves([{}], wave))
    with pytest.raises(ValueError, match="a time must be"):
        span_s("soon")
