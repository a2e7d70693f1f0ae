"""The cluster of three: it agrees on leaders, survives the loss of one, and takes it back."""

import pytest

from runtime.embedded.nats_cluster import NatsCluster
from runtime.nats import connect

pytestmark = pytest.mark.cluster


async def test_a_stream_survives_a_step_down_and_the_loss_of_its_leader(nats_cluster: NatsCluster) -> None:
    """What was acknowledged by three is there when one is gone, and the one that comes back is taken in."""
    connection = await connect(nats_cluster.login("system"), name="test")
    jetstream = connection.jetstream(timeout=10)
    await jetstream.add_stream(name="KEPT", subjects=["kept"], num_replicas=3)
    await jetstream.publish("kept", b"1")

    before = await nats_cluster.leader("KEPT")
    after = await nats_cluster.step_down("KEPT")
    assert after != before
    await jetstream.publish("kept", b"2")

    nats_cluster.kill(after)
    assert await nats_cluster.leader("KEPT") != after
    await nats_cluster.restart(after)
    assert [(await jetstream.get_msg("KEPT", sequence)).data for sequence in (1, 2)] == [b"1", b"2"]
    await connection.close()


async def test_a_team_is_answered_through_any_server(nats_cluster: NatsCluster) -> None:
    """Accounts and what they import work between servers too, where answers take another way."""
    servers = nats_cluster.servers
    gate = await connect(servers[0].login("gate"), name="gate")
    team = await connect(servers[1].login("team-red"), name="red")

    async def answer(message) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - the client's type of callback
        await message.respond(b"answer")

    await gate.subscribe("muster.main.ask.*", queue="gate", cb=answer)
    await gate.flush()
    assert (await team.request("muster.main.ask.red", b"x", timeout=5)).data == b"answer"
    await gate.close()
    await team.close()
