"""The configuration of the three NATS servers of docker-compose.yml: the embedded one's, for servers in containers.

`python -m runtime.embedded.nats_deployed` writes deploy/nats.conf anew, with `--check` it says whether that is stale, with
`--env` it prints passwords for a deploy/.env. The file holds no password: the server takes each from its environment.
"""

import argparse
import json
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from events.base import NodeId, TeamId
from events.subjects import Subjects
from runtime.embedded import principals
from runtime.embedded.nats_config import ROUTE_USER, SYSTEM_USER, NatsConfig, render

PATH: Final = Path(__file__).parents[2] / "deploy" / "nats.conf"
SERVERS: Final = ("nats-1", "nats-2", "nats-3")
AGENTS: Final = (NodeId("node-1"), NodeId("node-2"))
TEAMS: Final = (TeamId("demo"),)
CLIENT_PORT: Final = 4222
ROUTE_PORT: Final = 6222
MONITOR_PORT: Final = 8222
NAME_VARIABLE: Final = "MUSTER_NATS_NAME"
POSTGRES_VARIABLE: Final = "MUSTER_POSTGRES_PASSWORD"
PASSWORD_BYTES: Final = 24  # of chance, before encoding
VARIABLE: Final = re.compile(r'"\$(\w+)"')


def members(subjects: Subjects) -> list[principals.Principal]:
    """Who may connect: the cell's parts, two agents and one team."""
    agents = [principals.agent(subjects, node_id) for node_id in AGENTS]
    return [*principals.parts(subjects), *agents, *(principals.team(subjects, team) for team in TEAMS)]


def password_variable(user: str) -> str:
    """The variable that a user's password is taken from."""
    return f"MUSTER_NATS_PASSWORD_{user.upper().replace('-', '_')}"


def route_variable(server: str) -> str:
    """The variable with the URL, user and password included, at which the other servers reach one."""
    return f"MUSTER_NATS_ROUTE_{server.rpartition('-')[2]}"


def variables() -> list[str]:
    """Every variable that an operator sets: passwords, of NATS users and of PostgreSQL."""
    users = [member.user for member in members(Subjects())]
    return [*map(password_variable, [*users, SYSTEM_USER, ROUTE_USER]), POSTGRES_VARIABLE]


def configuration() -> str:
    """The text of the file, the same for each of the servers."""
    subjects = Subjects()
    everybody = members(subjects)
    users = [*(member.user for member in everybody), SYSTEM_USER, ROUTE_USER]
    embedded = NatsConfig(
        name=f"${NAME_VARIABLE}",
        port=CLIENT_PORT,
        store=Path("/data"),
        cell=subjects.cell,
        members=everybody,
        passwords={user: f"${password_variable(user)}" for user in users},
        monitor_port=MONITOR_PORT,  # on loopback: the health check is inside the container
    )
    block: dict[str, Any] = json.loads(render(embedded))
    block["listen"] = f"0.0.0.0:{CLIENT_PORT}"
    block["cluster"] = {
        "name": "muster",
        "listen": f"0.0.0.0:{ROUTE_PORT}",
        "no_advertise": True,  # addresses of containers mean nothing to clients outside
        "authorization": {"user": ROUTE_USER, "password": f"${password_variable(ROUTE_USER)}"},
        "routes": [f"${route_variable(server)}" for server in SERVERS],
    }
    # In quotes the server would take a variable for the text that it is.
    text = VARIABLE.sub(r"$\1", json.dumps(block, indent=1))
    return f"# Made by `python -m runtime.embedded.nats_deployed`. Who may do what is said in principals.py.\n{text}\n"


def passwords() -> str:
    """New passwords, as lines of a file that Docker Compose reads."""
    return "".join(f"{name}={secrets.token_urlsafe(PASSWORD_BYTES)}\n" for name in variables())


def main(arguments: Sequence[str]) -> int:
    """0; with `--check` 1 when the file is stale."""
    parser = argparse.ArgumentParser(prog="python -m runtime.embedded.nats_deployed")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when deploy/nats.conf is stale")
    parser.add_argument("--env", action="store_true", help="print new passwords for deploy/.env and do nothing else")
    options = parser.parse_args(arguments)
    if options.env:
        sys.stdout.write(passwords())
        return 0
    if options.check:
        fresh = PATH.is_file() and PATH.read_text() == configuration()
        sys.stderr.write("" if fresh else "deploy/nats.conf is stale: python -m runtime.embedded.nats_deployed\n")
        return 0 if fresh else 1
    PATH.write_text(configuration())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
