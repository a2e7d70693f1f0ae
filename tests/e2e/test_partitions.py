"""Ways that are cut for real: between agents and NATS, and between a control plane and NATS."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import NodeId
from events.codec import EPOCH
from events.fleet import NodeLost, NodeSuspected, Patience
from events.head import LeadershipTaken, RoundDecided
from events.job import JobPlaced, JobRequeued, JobSucceeded, RunStarted
from events.node import GpusFoundClean, NodeJoined, ShareEnded
from events.policy import PolicySet
from tests.e2e.cell import Cell, cell
from tests.fixtures.proxy import Way
from tests.fixtures.waiting import until

QUICK: Final = PolicySet(at=EPOCH, suspect_after_s=1.0, lost_after_s=4.0, lost_most_s=4.0)
DEAR: Final = PolicySet(at=EPOCH, suspect_after_s=1.0, lost_after_s=3.0, restart_s=60, lost_most_s=60.0)

pytestmark = [pytest.mark.slow]


async def joined_again(cell: Cell, node_id: NodeId) -> None:
    """A new life of the node has found all its GPUs clean."""
    await until(lambda: len(cell.told(NodeJoined, node_id=node_id)) == 2, within_s=20, what="it joins again")
    await until(lambda: len(cell.told(GpusFoundClean, node_id=node_id)) >= 2, within_s=20, what="its GPUs are clean")


async def test_a_node_that_comes_back_in_time_loses_nothing(tmp_path: Path) -> None:
    """Cut off for longer than the least patience, and for less than a restart costs: the same ranks go on.

    First both ways, then only the one by which it is heard.
    """
    async with cell(tmp_path, DEAR, nodes=1) as cut:
        await cut.submit("job")
        node_id = await cut.runs("job")
        await cut.tells(RunStarted)
        for ways in ((), (Way.UP,)):
            await asyncio.sleep(0.5)  # a heartbeat that promises to go on for as long as that
            cut.ways[node_id].hold(*ways)
            await asyncio.sleep(3.8)
            cut.ways[node_id].heal()
            await until(lambda: not cut.cluster.suspects, within_s=20, what="it is heard again")
        cut.end("job")
        await cut.tells(JobSucceeded)

        assert len(cut.told(NodeSuspected, node_id=node_id)) == 2
        assert (cut.told(NodeLost), len(cut.told(JobPlaced))) == ([], 1)
        times = [at for at, _ in cut.written("job", 1)]
        assert max(later - sooner for sooner, later in pairwise(times)) < 2.0
        await cut.whole(1)


async def test_ranks_that_may_restart_have_ended_before_they_start_elsewhere(tmp_path: Path) -> None:
    """The node ends them itself, out of reach; it comes back with a new life, and all its GPUs."""
    async with cell(tmp_path, QUICK, nodes=2) as cut:
        await cut.submit("job")
        node_id = await cut.runs("job")
        cut.ways[node_id].cut()

        other = await cut.runs("job", attempt=2)

        lost = await cut.tells(NodeLost, node_id=node_id)
        last, first = cut.written("job", 1)[-1][0], cut.written("job", 2)[0][0]
        assert other != node_id
        assert last < first - 0.5, "of two copies one has long ended"
        assert (lost.patience, lost.patience_s) == (Patience.MOST, 4.0)
        cut.ways[node_id].heal()
        await joined_again(cut, node_id)
        cut.end("job")
        await cut.tells(JobSucceeded)
        assert len(cut.told(JobPlaced)) == 2
        await cut.whole(2)


async def test_what_waits_for_its_node_starts_nowhere_else_until_that_is_clean(tmp_path: Path) -> None:
    """Its rank works on where nobody sees it. Once the node is back it is ended, and only then begun again."""
    async with cell(tmp_path, QUICK, nodes=2) as cut:
        await cut.submit("job", on_lost="wait")
        node_id = await cut.runs("job")
        cut.ways[node_id].hold()
        await cut.tells(NodeLost, node_id=node_id)
        lost_at = time.time()
        await asyncio.sleep(1.5)
        assert cut.written("job", 1)[-1][0] > lost_at + 1.0, "it goes on"
        assert (len(cut.told(JobPlaced)), cut.told(JobRequeued)) == (1, [])

        cut.ways[node_id].heal()
        await cut.runs("job", attempt=2)

        assert cut.written("job", 1)[-1][0] < cut.written("job", 2)[0][0]
        kinds = [type(recorded.event) for recorded in cut.records]
        again = len(kinds) - 1 - kinds[::-1].index(NodeJoined)
        assert again < kinds.index(GpusFoundClean, again) < kinds.index(JobRequeued)
        cut.end("job")
        await cut.tells(JobSucceeded)
        await cut.whole(2)


async def test_when_most_are_cut_off_at_once_nobody_is_given_up(tmp_path: Path) -> None:
    """Somebody is called, nothing new goes there; when the way is open again, all go on as they were."""
    async with cell(tmp_path, QUICK, nodes=4) as cut:
        names = [f"job-{n}" for n in range(4)]
        for name in names:
            await cut.submit(name, gpus=2, nodes=1, gpus_per_node=2, on_lost="wait")
        on = {name: await cut.runs(name) for name in names}
        far = [on[name] for name in names[1:]]
        for node_id in far:
            cut.ways[node_id].hold()
        alarm = await cut.tells(AlarmRaised)
        await asyncio.sleep(4.0)
        assert (alarm.code, alarm.node_ids) == (AlarmCode.NETWORK_SUSPECTED, tuple(sorted(far)))
        assert len(cut.told(NodeSuspected)) == 3

        for node_id in far:
            cut.ways[node_id].heal()
        await cut.tells(AlarmCleared)
        for name in names:
            cut.end(name)
        await until(lambda: len(cut.told(JobSucceeded)) == 4, within_s=20, what="all jobs have succeeded")

        assert (cut.told(NodeLost), len(cut.told(JobPlaced)), cut.told(ShareEnded, exit_code=1)) == ([], 4, [])
        await cut.whole(4)


async def test_a_leader_that_is_cut_off_is_replaced_and_its_last_append_is_refused(tmp_path: Path) -> None:
    """It was on its way when the way was cut, and arrives when another leads: nothing of it is in the log."""
    async with cell(tmp_path, QUICK, nodes=1, planes=2) as cut:
        old = cut.cluster.leader
        way = cut.ways[old]
        way.trap = b"musterbook.control.round_decided"
        await cut.submit("job")
        await until(lambda: way.held, within_s=20, what="its append is on the way")

        (new,) = set(cut.planes) - {old}
        taken = await cut.tells(LeadershipTaken, instance=new)
        await cut.runs("job")
        way.heal()
        await cut.submit("other")
        await cut.runs("other")
        cut.end("job")
        cut.end("other")
        await until(lambda: len(cut.told(JobSucceeded)) == 2, within_s=20, what="both jobs have succeeded")

        assert len(cut.told(JobPlaced)) == 2
        begun = next(recorded.position for recorded in cut.records if recorded.event is taken)
        since = [recorded for recorded in cut.records if recorded.position > begun]
        epochs = {recorded.event.epoch for recorded in since if isinstance(recorded.event, RoundDecided)}
        assert epochs == {begun}, "only the new leader has decided"
        assert cut.planes[old].returncode is None
        await cut.whole(1)
