"""The configuration of a NATS server as Musterbook needs it, as text. The same for one server and for each of a cluster.

`max_payload` stays at 1 MiB, the server's default: it bounds one message, headers included, and a placement on 12,500
nodes fits. An atomic batch is many messages and has a bound of its own, in their number.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from events.log.port import BATCH_MAX
from events.subjects import Subjects
from runtime.embedded import principals

HOST: Final = "127.0.0.1"
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
BATCHES_PER_STREAM_MAX: Final = 256  # open at once; the default of 50 is met by a few gates under load
BATCHES_MAX: Final = 1_000  # open at once, all streams together
SYSTEM_ACCOUNT: Final = "SYS"
SYSTEM_USER: Final = "sys"
ROUTE_USER: Final = "route"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A server's place in a cluster: its own port for the others, and all ports of the cluster, its own included."""

    name: str
    cluster: str
    port: int
    ports: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class NatsConfig:
    """What one server is started with."""

    name: str
    port: int
    store: Path
    cell: str
    members: Sequence[principals.Principal]  # all who may connect
    passwords: dict[str, str]  # of each of them, of `SYSTEM_USER` and of `ROUTE_USER`
    monitor_port: int | None = None  # HTTP on loopback, for people; None: none
    member: Member | None = None
    durable: bool = True  # what is acknowledged is on the disk


def render(config: NatsConfig) -> str:
    """The text of the configuration file. JSON, which the server reads as well as its own format."""
    with_passwords = [(member, config.passwords[member.user]) for member in config.members]
    system_users = [{"user": SYSTEM_USER, "password": config.passwords[SYSTEM_USER]}]
    block: dict[str, Any] = {
        "server_name": config.name,
        "listen": f"{HOST}:{config.port}",
        "max_payload": PAYLOAD_BYTES_MAX,
        "jetstream": {
            "store_dir": str(config.store),
            # The default is two minutes: what was acknowledged since then is lost with the power.
            "sync_interval": "always" if config.durable else "2m",
            "limits": {
                "batch": {
                    "max_msgs": BATCH_MAX,
                    "max_inflight_per_stream": BATCHES_PER_STREAM_MAX,
                    "max_inflight_total": BATCHES_MAX,
                }
            },
        },
        "accounts": {SYSTEM_ACCOUNT: {"users": system_users}}
        | principals.accounts(Subjects(config.cell), with_passwords),
        "system_account": SYSTEM_ACCOUNT,
    }
    if config.monitor_port is not None:
        block["http"] = f"{HOST}:{config.monitor_port}"
    if config.member is not None:
        block["cluster"] = _cluster(config.member, config.passwords[ROUTE_USER])
    return json.dumps(block, indent=1) + "\n"


def _cluster(member: Member, password: str) -> dict[str, Any]:
    return {
        "name": member.cluster,
        "listen": f"{HOST}:{member.port}",
        "authorization": {"user": ROUTE_USER, "password": password},
        "routes": [f"nats://{ROUTE_USER}:{password}@{HOST}:{port}" for port in member.ports if port != member.port],
    }
