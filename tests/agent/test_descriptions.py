"""What a node says of itself: with its joining, and anew when it was started with other words, in the same life."""

from typing import Any

from events.base import RunId
from events.node import NodeDescribed, NodeJoined, ShareStarted
from tests.agent.conftest import Agents
from tests.agent.control import Control, share_of

RUN = RunId("jaa-1")
SAID: dict[str, Any] = {"rack": "r1", "spine": "s1", "labels": {"fabric": "ib"}, "taints": ("old",)}


async def test_other_labels_are_told_without_a_new_life(agents: Agents, control: Control) -> None:
    """What runs goes on; words that have not changed are not said again."""
    task = agents.start(**SAID)
    gpus = await control.pooled()
    joined = control.told(NodeJoined)[0]
    assert (joined.labels, joined.taints) == ({"fabric": "ib", "rack": "r1", "spine": "s1"}, ("old",))
    await control.want(share_of(gpus[:1], "sleep", "60"))
    await control.heard(ShareStarted, RUN)
    await agents.stop(task)

    task = agents.start(**SAID | {"rack": "r2", "taints": ()})
    described = await control.heard(NodeDescribed)
    assert (described.labels["rack"], described.taints, described.node_epoch) == ("r2", (), control.epoch)
    await control.want()
    await agents.stop(task)
    agents.start(**SAID | {"rack": "r2", "taints": ()})
    await control.want(again := share_of(gpus[:1], "true", job="again"))
    await control.ended(again.run_id)
    assert len(control.told(NodeDescribed)) == len(control.told(NodeJoined)) == 1
