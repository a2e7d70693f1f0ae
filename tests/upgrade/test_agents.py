"""An agent beside servers of a newer version: real processes, a real NATS, and messages that hold more than it knows."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from events.base import Position, RunId, SlotMask
from events.desired import Desired, DesiredShare, Order
from events.job import Checkpoint
from events.node import EndReason, GpusReleased, ShareEnded, ShareStarted
from events.subjects import Subjects
from runtime.nats import Connection
from runtime.stored import stored
from tests.agent.conftest import Agents
from tests.agent.control import NODE, Control, share_of
from tests.fixtures.waiting import until

SAVES = (  # a rank that keeps what it is told when it is to save
    "import os,signal,sys\n"
    "def save(*_):\n"
    " os.rename(os.environ['MUSTER_STOP_FILE'], os.environ['OUT']); sys.exit(0)\n"
    "signal.signal(signal.SIGUSR2, save)\n"
    "open(os.environ['OUT'] + '.up', 'w').close()\n"
    "while True: signal.pause()"
)
TELLS = (sys.executable, "-I", "-S", "-c", SAVES)


class Noted(msgspec.Struct, tag_field="answer", tag="noted"):
    """An answer of a newer gate."""


async def write(connection: Connection, desired: Desired, **later: dict[str, Any]) -> None:
    """The value is stored as a newer version would have written it: what `later` says of a run is in its share."""
    message = msgspec.to_builtins(desired)
    message["shares"] = [share | later.get(share["run_id"].partition("-")[0], {}) for share in message["shares"]]
    payload = json.dumps(message | {"later": 1}).encode()
    assert await stored(connection, Subjects().desired(NODE), payload, headers={}, within_s=5)


def told_after(control: Control, *shares: DesiredShare, steps: int) -> Desired:
    """The same life, some positions later."""
    assert control.joined is not None
    as_of = Position(control.epoch + 1_000 + steps)
    return Desired(node_id=NODE, epoch=control.epoch, instance=control.joined.instance, as_of=as_of, shares=shares)


async def test_what_it_cannot_start_is_declined_and_all_else_goes_on(
    agents: Agents, control: Control, nats_connection: Connection
) -> None:
    """A spec with a value of a newer version; beside it a run that starts, lives on, and is stopped for an unknown cause."""
    _ = agents.start()
    gpus = await control.pooled()
    out = agents.folder / "told"
    known = share_of(gpus[:1], *TELLS, job="jaa", checkpoint=Checkpoint(grace_s=5), env={"OUT": str(out)})
    odd = share_of(gpus[1:2], "true", job="jbb", slots=SlotMask(0b10))
    spec = msgspec.to_builtins(odd.spec) | {"on_lost": "hover"}
    await write(nats_connection, told_after(control, known, odd, steps=1), jbb={"spec": spec})

    end = await control.ended(RunId("jbb-1"))
    assert (end.reason, "newer version" in end.message) == (EndReason.START_FAILED, True)
    await control.heard(ShareStarted, RunId("jaa-1"))
    await until(Path(f"{out}.up").exists, what="it handles the signal")
    assert control.told(ShareEnded, RunId("jaa-1")) == []

    stopped = msgspec.structs.replace(known, order=Order.STOP)
    await write(nats_connection, told_after(control, stopped, steps=2), jaa={"reason": "solar_flare", "spec": spec})
    await control.heard(GpusReleased, RunId("jaa-1"))
    assert json.loads(out.read_text())["reason"] == "solar_flare"


async def test_an_answer_that_it_cannot_read_is_none(agents: Agents, control: Control) -> None:
    """It tells the same again, and lives; the gate that answers so that it understands has it."""
    control.refusal = Noted()  # type: ignore[assignment]  # what this version does not know
    task = agents.start()
    await until(lambda: control.messages >= 2, what="told again")
    control.refusal = None
    await control.pooled()
    assert not task.done()
