"""From settings to a running agent."""

import asyncio
import importlib.metadata
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from agent.environment import DATA_MARK, inherited
from agent.gpus import GPUS_MAX, Gpus
from agent.nats_link import dial_nats
from agent.node import Node, host_name, identified, processes_of, this_life
from agent.nvml import NvmlGpus
from agent.ports import free_block, held
from agent.procfs import boot_id
from agent.records import Description, Identity, Records
from agent.service import Agent, Timing
from agent.simulated import SimulatedGpus
from events.base import NodeId
from events.subjects import NAME_RULE, Subjects, is_name
from runtime.children import FolderLock
from runtime.clock import Clock, SystemClock
from runtime.fault import Fault
from runtime.logging import get_logger
from runtime.settings import AgentSettings

logger = get_logger(__name__)

SIMULATED_TYPE: Final = "simulated"


class Place(msgspec.Struct, frozen=True):
    """Where this agent is reached, and what it is."""

    address: str
    version: str


async def serve(
    settings: AgentSettings,
    *,
    environ: Mapping[str, str],
    checkpoint_dir: Path | None = None,
    contain: bool = True,
    clock: Clock | None = None,
) -> None:
    """Be the agent of one node until cancelled; ranks live on. Several nodes' agents may share a process.

    `environ`: what ranks inherit from, see `agent.environment`. `checkpoint_dir`: where jobs that name none keep
    checkpoints; None: under the data directory. `contain`: runs get control groups where those can be made.
    Raises `Fault` when the data directory is another agent's, or the GPUs cannot be asked.
    """
    clock = clock or SystemClock()
    data_dir = settings.data_dir.absolute()
    lock = FolderLock(data_dir)
    lock.take()
    marker: socket.socket | None = None

    def choose_ports() -> int:
        nonlocal marker
        base, marker = free_block(data_dir)
        return base

    try:
        node_id = _node_id(settings)
        records = Records(data_dir)
        gpus = _gpus(settings, node_id, data_dir, records.identity())
        identity = identified(records, node_id, gpus, choose_ports, this_life())
        if marker is None and (marker := held(identity.port_base)) is None:
            logger.warning("ports_shared", port_base=identity.port_base)  # in a later epoch they could be others
        base = inherited(environ, node_id)
        processes = processes_of(data_dir, base, checkpoint_dir=checkpoint_dir, contain=contain)
        node = Node(records, identity, gpus, processes, clock=clock)
        node.unkillable_after_s = settings.unkillable_after_s
        version = importlib.metadata.version("musterbook")
        node.description = Description(labels=settings.said_labels, taints=settings.taints, version=version)
        timing = msgspec.convert(settings.model_dump(include=set(Timing.__struct_fields__)), Timing)
        place = Place(settings.address or _address(settings), version)
        dial = dial_nats(settings.login, Subjects(settings.cell), node_id)
        await Agent(node, place, clock=clock, timing=timing).run(dial)
    finally:
        if marker is not None:
            marker.close()
        lock.give_back()


def _node_id(settings: AgentSettings) -> NodeId:
    name = settings.node_id or host_name()
    if not is_name(name):
        raise Fault("node_name_refused", f"{name!r} cannot be the name of a node.", f"A name is {NAME_RULE}.")
    return NodeId(name)


def _gpus(settings: AgentSettings, node_id: NodeId, data_dir: Path, before: Identity | None) -> Gpus:
    """The GPUs as the settings have them. One that was here `before`, in this boot, does not go missing unseen."""
    driver, _, rest = settings.gpus.partition(":")
    if driver == "nvml":
        here = before is not None and before.boot_id == boot_id()
        expected = before.gpu_uuids if before is not None and here else ()
        return NvmlGpus(expected=expected, mark=f"{DATA_MARK}={data_dir}".encode())
    count, _, gpu_type = rest.partition(":")
    if not 1 <= int(count) <= GPUS_MAX:
        raise Fault("gpus_unsuited", f"A node has 1 to {GPUS_MAX} GPUs, not {count}.", "Simulate more nodes.")
    return SimulatedGpus(node_id, int(count), gpu_type or SIMULATED_TYPE, data_dir)


def _address(settings: AgentSettings) -> str:
    """The address from which this machine reaches the servers: where other nodes reach it, too."""
    target = urlsplit(settings.nats_urls[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting it sends nothing
        try:
            probe.connect((target.hostname or "127.0.0.1", target.port or 4222))
        except OSError as error:
            hint = "Set MUSTER_ADDRESS to the address at which other nodes reach this one."
            raise Fault("address_unknown", f"This node's address is not known: {error}.", hint) from error
        return str(probe.getsockname()[0])


def main(settings: AgentSettings, environ: Mapping[str, str]) -> None:
    """The process of one agent: until it is told to end."""
    from runtime.stopping import run_until_stopped, stop_on_signals

    async def run() -> None:
        with stop_on_signals() as stop:
            await run_until_stopped(stop, serve(settings, environ=environ))

    asyncio.run(run())
