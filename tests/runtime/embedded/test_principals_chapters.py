"""Each goes on with its own rights when the log goes on in another chapter."""

from contextlib import AsyncExitStack

import pytest

from events.base import TeamId, position_of
from events.chain import Chain, extended
from events.job import JobAdmitted, JobId
from events.log.append import JetStreamLog
from events.log.port import Conflict, Roll
from events.log.streams import StreamSettings, check, found
from runtime.embedded.nats import EmbeddedNats
from tests.events.log.rigs import NOW, connected, policy, read_to, submitted, taken, wired

FIRST = position_of(1, 1)


async def test_each_goes_on_in_the_next_chapter_with_the_rights_it_has(nats_server: EmbeddedNats) -> None:
    """The control plane closes and opens, gate and control plane write, readers follow, a team reads and hears its own."""
    async with AsyncExitStack() as stack:
        system = await connected(nats_server.login("system"), stack)
        await found(system, StreamSettings())
        control = JetStreamLog(await connected(nats_server.login("control"), stack))
        gate = JetStreamLog(await connected(nats_server.login("gate"), stack))
        team = await connected(nats_server.login("team-red"), stack)
        operator = await connected(nats_server.login("operator"), stack)
        heard = await team.subscribe("muster.main.ev.job.red.*")
        await team.flush()
        await gate.record([submitted("j1"), policy(position_of(0, 0))])
        chain = extended(Chain(), tuple(await read_to(control, await control.end())))

        rolled = await control.roll(chain, Roll(log_id="x", at=NOW))
        with pytest.raises(Conflict):
            await gate.record([submitted("j1")])
        end = await gate.record([submitted("j2")])
        admitted = JobAdmitted(at=NOW, team=TeamId("red"), job_id=JobId("j1"))
        end = await control.append([taken(), admitted], after=rolled.opened)

        reader = wired(nats_server.login("reader"), stack)
        assert (await read_to(reader, end))[-1].event == admitted
        assert (await heard.next_msg(timeout=5)).subject == "muster.main.ev.job.red.j1"
        for asked, stream, subject in (
            (team, "EVENTS_0001", "intake.red.j1"),
            (team, "EVENTS_0002", "intake.red.j2"),
            (team, "EVENTS_0002", "job.red.j1"),
            (operator, "EVENTS_0001", "policy"),
        ):
            got = await asked.request(f"$JS.API.DIRECT.GET.{stream}.muster.main.ev.{subject}", b"", timeout=5)
            assert got.headers is not None
            assert got.headers["Nats-Subject"] == f"muster.main.ev.{subject}"
        assert (await check(system, StreamSettings(), trial=True)).end == end
