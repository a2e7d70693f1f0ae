"""What a version keeps or shows that another one made: snapshots, tables that the API finds, a standby that has just begun."""

import asyncio

import pytest

import projections.cluster.snapshot as snapshots
from events.base import START, Position, position_of
from events.codec import vocabulary
from events.log.memory import MemoryLog
from projections.cluster.snapshot import dump, load
from projections.cluster.state import Cluster
from projections.tables import schema
from runtime.clock import ManualClock
from runtime.postgres import create_pool
from services.cli.fleet import NODE_COLUMNS, node_row
from services.control.leader import ControlPlane, Name
from tests.clusters import World
from tests.fixtures.waiting import until
from tests.services.api.cell import Cell
from tests.services.control.cells import CLOCK, Hint


def test_a_snapshot_of_another_vocabulary_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made it passed over what this version can read, or knew what this one does not."""
    world = World({"n1": 2})
    saved = dump(world.cluster)
    assert load(saved, log_id=world.cluster.log_id) is not None
    monkeypatch.setattr(snapshots, "vocabulary", lambda: f"{vocabulary()} and a word")
    assert load(saved, log_id=world.cluster.log_id) is None


def test_who_has_not_read_the_log_does_not_ask_for_the_lease(clock: ManualClock) -> None:
    """Nor who cannot read a decision. A chapter that nobody has opened yet is not waited for."""
    plane = ControlPlane(MemoryLog("main", clock.now), Cluster(), Hint(), CLOCK, name=Name("new", "2"))
    end = position_of(1, 7)
    assert (plane.may_lead(START), plane.may_lead(end), plane.may_lead(position_of(2, 0))) == (True, False, True)
    plane.cluster.position = end
    assert plane.may_lead(end)
    plane.cluster.unread = position_of(1, 5)
    assert not plane.may_lead(end)


async def test_tables_that_are_not_of_this_version_are_said_to_be_so(cell: Cell, postgres_dsn: str) -> None:
    """The API is newer than they are: reads wait for its projector, asks are taken."""
    position = await cell.join()
    await until_shown(cell, position)
    assert cell.projector is not None
    cell.projector.cancel()
    await until(cell.projector.done)
    pool = await create_pool(postgres_dsn, name="older")
    await pool.execute(f"ALTER TABLE {schema.LIVE}.node_view RENAME COLUMN agent_version TO of_another_version")
    await pool.close()
    found = await cell.http.get("/v1/nodes")
    assert (found.status_code, found.json()["code"]) == (503, "tables_of_another_version")
    assert (await cell.submit("key"))["job_id"]


async def until_shown(cell: Cell, position: Position) -> None:
    """The tables, once there are any, show the position."""
    while (await cell.http.get("/v1/nodes", params={"min_position": position})).status_code != 200:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def test_nodes_are_shown_with_the_version_of_their_agent() -> None:
    """So that an operator sees which are still to be upgraded."""
    node = dict.fromkeys(("gpu_type", "gpus_total", "gpus_used", "gpus_free", "gpus_out", "address"), 1)
    row = node_row(node | {"node_id": "n1", "state": "up", "agent_version": "1.5.0"}, CLOCK.now())
    shown = {column.title: text for column, text in zip(NODE_COLUMNS, row, strict=True)}
    assert shown["AGENT"] == "1.5.0"
