"""Two control planes of which one knows a type less, with real leases on a real server: the one that knows leads."""

import asyncio
from contextlib import AsyncExitStack, suppress

from events.base import START, NodeId, Position
from events.codec import TYPES, Codec
from events.fleet import DrainCause, NodeDrained
from events.head import LeadershipTaken
from events.job import JobPlaced
from events.log.append import JetStreamLog
from events.log.follow import JetStreamReader
from events.log.port import Log
from events.operator import NodeDrainAsked
from runtime.embedded.nats import EmbeddedNats
from runtime.lease import Lease
from runtime.nats import connect
from services.control.leader import ControlPlane
from tests.fixtures.waiting import until
from tests.services.control.cells import CLOCK, Cell, Hint

TTL_S = 1.0
OLDER = tuple(cls for cls in TYPES if cls not in {NodeDrainAsked, NodeDrained})


class Drowsy:
    """A lease whose holder does nothing with it for a while, and keeps it all the same."""

    def __init__(self, lease: Lease) -> None:
        self.asleep = False
        self._lease = lease

    @property
    def held(self) -> bool:
        """See `services.control.leader.Lease`."""
        return self._lease.held and not self.asleep


async def test_who_cannot_read_a_decision_never_leads_after_it(nats_server: EmbeddedNats, real: Cell) -> None:
    """It holds the lease when a newer one decides what it does not know: it gives it up, and nothing is lost or doubled."""
    connections = {name: await connect(nats_server.login("system"), name=name) for name in ("old", "new", "hasty")}

    def open_log(name: str) -> Log:
        older = JetStreamReader(connections[name], codec=Codec(OLDER)) if name == "old" else None
        return JetStreamLog(connections[name], source=name, reader=older)

    real.open_log = open_log
    planes: dict[str, ControlPlane] = {}

    def lease_of(name: str) -> Lease:
        def wanted() -> bool:
            return planes[name].may_lead(START)

        return Lease(connections[name], instance=name, ttl_s=TTL_S, clock=CLOCK, wanted=wanted)

    leases = {name: lease_of(name) for name in ("old", "new")}
    renewing: list[asyncio.Task[None]] = []
    try:
        async with AsyncExitStack() as stack:
            hints = {name: Drowsy(lease) for name, lease in leases.items()}
            for name, lease in leases.items():
                planes[name], _ = await stack.enter_async_context(real.plane(name, hints[name]))
                renewing.append(asyncio.create_task(lease.run()))
                await until(lambda: leases["old"].held)
            await real.join("n1", 2)
            await real.join("n2", 2)
            await until(lambda: planes["old"].leading)
            first = await real.submit("first", 2)
            await until(lambda: real.placed(first))

            asked = NodeDrainAsked(at=CLOCK.now(), node_id=NodeId("n2"), cause=DrainCause.OPERATOR, reason="fan")
            at = await real.gate.record([asked])
            await until(lambda: planes["old"].cluster.position >= at)
            assert (planes["old"].cluster.unread, planes["old"].leading) == (0, True)  # an ask is not for it to judge

            hints["old"].asleep = True
            async with real.plane("hasty", Hint(held=True)):  # another newer one decides meanwhile, and goes
                await until(lambda: planes["old"].cluster.unread, within_s=10)
            hints["old"].asleep = False
            await until(lambda: leases["new"].held and not leases["old"].held, within_s=3 * TTL_S)
            await until(lambda: planes["new"].leading)

            await real.finish(real.run(first))
            second = await real.submit("second", 2)
            await until(lambda: real.placed(second))
            await asyncio.sleep(2 * TTL_S)  # it would have looked for the lease again
            assert (leases["old"].held, leases["new"].held) == (False, True)
    finally:
        for task in renewing:
            task.cancel()
        await asyncio.gather(*renewing, return_exceptions=True)
        for connection in connections.values():
            with suppress(OSError):
                await connection.close()
    beyond = next(r.position for r in real.records if isinstance(r.event, NodeDrained))
    assert led_after(real, beyond) == {"new"}
    assert real.kinds(JobPlaced, NodeDrained) == ["JobPlaced", "NodeDrained", "JobPlaced"]


def led_after(cell: Cell, position: Position) -> set[str]:
    """Who took the leadership after a position."""
    later = (r.event for r in cell.records if r.position > position)
    return {event.instance for event in later if isinstance(event, LeadershipTaken)}
