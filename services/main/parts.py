"""The parts of the control plane, each made of its pieces and run until it is told to stop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import msgspec
from pydantic import SecretStr, ValidationError

from events.desired import Heartbeat
from events.log.append import JetStreamLog
from events.log.port import LogFault, Reader
from events.log.streams import Founded, StreamSettings, check
from events.log.wire import WireReader
from events.subjects import DESIRED_STREAM, Subjects, last_token
from projections.cluster.evolve import evolve
from projections.cluster.state import Cluster
from projections.tables.projector import Progress, project
from runtime.beats import beat, hearing
from runtime.embedded.credentials import Credentials
from runtime.fault import Fault
from runtime.last_values import LastValues
from runtime.lease import Lease
from runtime.logging import get_logger
from runtime.nats import Connection, connect
from runtime.postgres import Pool, patient_pool
from runtime.serve_requests import Served, serving
from runtime.settings import (
    ApiSettings,
    CommonSettings,
    ControlSettings,
    DispatcherSettings,
    GateSettings,
    ReaderSettings,
    WebhooksSettings,
)
from runtime.stopping import Stop, run_until_stopped
from services.api.app import open_api
from services.api.parts import Parts
from services.control.answers import (
    DRY_RUNS_AT_ONCE,
    ROLLS_AT_ONCE,
    answering_dry_run,
    answering_entitled,
    answering_roll,
    answering_why,
)
from services.control.chapters import Chapters, Limits
from services.control.leader import ControlPlane, Name, Watcher
from services.control.snapshots import Snapshots
from services.dispatcher.service import Dispatcher
from services.gate.gate import open_gate
from services.gate.serve import serve
from services.main.local import CLOCK, read_running
from services.main.reconciled import reconciled_by_child
from services.webhooks.post import Post
from services.webhooks.run import Webhooks

logger = get_logger(__name__)

BEAT_EVERY_S: Final = 0.5  # of a control plane, so that it knows that beats come through
LOG_WITHIN_S: Final = 60.0  # for a log that is being founded
LOG_EVERY_S: Final = 0.5
LOOK_AGAIN_S: Final = 5.0  # at what an operator has to mend

Trouble = TypeVar("Trouble", Fault, LogFault)
Settings = TypeVar("Settings", bound=CommonSettings)


def read(kind: type[Settings]) -> Settings:
    """The settings of a process, from the environment. Raises `Fault`."""
    try:
        return kind()
    except ValidationError as error:
        first = error.errors()[0]
        name = f"MUSTER_{'_'.join(str(part) for part in first['loc']).upper()}"
        raise Fault("settings_wrong", f"{name}: {first['msg']}.", "Set it in the environment.") from error


def read_here(kind: type[Settings], data_dir: Path) -> Settings:
    """The settings of a command: its servers are those of the environment, else of the cluster that runs on `data_dir`.

    Raises `Fault` where there is neither.
    """
    given = read(kind)
    if names_servers(given):
        return given
    running = read_running(data_dir)
    if running is None:
        hint = "Start it with muster up, or set MUSTER_NATS_URLS and MUSTER_POSTGRES_DSN."
        raise Fault("no_cluster", f"No cluster runs on {data_dir}.", hint)
    found = {
        "nats_urls": (running.nats_url,),
        "nats_password": SecretStr(Credentials(data_dir.resolve()).password(given.nats_user)),
        "postgres_dsn": SecretStr(running.postgres_dsn),
    }
    return given.model_copy(update=found)


def names_servers(settings: CommonSettings) -> bool:
    """Whether the environment says where log or tables are."""
    return not settings.model_fields_set.isdisjoint({"nats_urls", "postgres_dsn"})


@asynccontextmanager
async def connected(settings: CommonSettings, name: str) -> AsyncIterator[Connection]:
    """A connection to NATS until the block is left."""
    connection = await connect(settings.login, name=name)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def reading(settings: CommonSettings) -> AsyncIterator[WireReader]:
    """Reads the log over a socket of its own until the block is left."""
    login = settings.login
    reader = WireReader(
        login.urls, settings.cell, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix
    )
    try:
        yield reader
    finally:
        reader.close()


async def standing_log(connection: Connection, settings: CommonSettings) -> Founded:
    """What the log is, once it is there and as it must be. Raises `Fault`."""
    given_up_s = CLOCK.monotonic() + LOG_WITHIN_S
    while True:
        try:
            return await check(connection, StreamSettings(cell=settings.cell, replicas=settings.replicas))
        except LogFault as fault:
            if CLOCK.monotonic() > given_up_s:
                raise Fault(fault.code, str(fault), fault.hint) from fault
            logger.info("log_not_ready", cause=fault.code, sentence=str(fault))
            await asyncio.sleep(LOG_EVERY_S)


def bare_reader(settings: CommonSettings) -> WireReader:
    """Follows the log over a socket of its own: several times as fast as over a connection that does all else too."""
    login = settings.login
    return WireReader(
        login.urls, settings.cell, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix
    )


async def control(stop: Stop) -> None:
    """A candidate for leading ran until `stop`."""
    await _control(stop, dispatches=False)


async def control_and_dispatcher(stop: Stop) -> None:
    """A candidate for leading ran until `stop`; while it led, it told the nodes what to run, from the same fold."""
    await _control(stop, dispatches=True)


async def _control(stop: Stop, *, dispatches: bool) -> None:
    settings = read(ControlSettings)
    instance = settings.instance or uuid4().hex[:12]
    subjects = Subjects(settings.cell)
    async with connected(settings, "control") as connection, reading(settings) as reader:
        founded = await standing_log(connection, settings)
        snapshots = Snapshots(settings.data_dir / "control", CLOCK, every_s=settings.snapshot_every_s)
        cluster = await snapshots.restore(reader, log_id=founded.log_id, end=founded.end)
        lease = Lease(
            connection,
            instance=instance,
            ttl_s=settings.lease_s,
            clock=CLOCK,
            wanted=lambda: plane.may_lead(founded.end),
        )
        log = JetStreamLog(connection, settings.cell, source=f"control/{instance}", reader=reader)
        plane = ControlPlane(log, cluster, lease, CLOCK, name=Name(instance, version("musterbook")))
        limits = Limits(settings.chapter_records, settings.chapter_bytes)
        chapters = Chapters(log, CLOCK, limits, folder=settings.data_dir / "control")
        await chapters.restore(reader, log_id=founded.log_id, to=cluster.position, end=founded.end)
        watchers: list[Watcher] = [snapshots.watch]
        dispatching = Dispatcher(
            LastValues(connection, DESIRED_STREAM), subjects, lambda: plane.leading and not plane.cluster.unread
        )
        if dispatches:
            watchers.append(dispatching.watch)
        own = f"control-{instance}"
        why = Served(subjects.why, "why", answering_why(plane, CLOCK), b"")
        tried = Served(subjects.dry_run, "dry_run", answering_dry_run(plane, CLOCK), b"", DRY_RUNS_AT_ONCE)
        entitled = Served(subjects.entitled, "entitled", answering_entitled(plane, CLOCK), b"", DRY_RUNS_AT_ONCE)
        roll = Served(subjects.roll, "roll", answering_roll(chapters), b"", ROLLS_AT_ONCE)
        async with (
            hearing(connection, subjects.heartbeats, lambda subject, data: _heard(plane, own, subject, data)),
            serving(connection, why, tried, entitled, roll),
        ):
            running = [lease.run(), plane.run(*watchers, chapters=chapters), _beat(connection, subjects.heartbeat(own))]
            await run_until_stopped(stop, *running, *([dispatching.run()] if dispatches else []))


def _heard(plane: ControlPlane, own: str, subject: str, payload: bytes) -> None:
    name = last_token(subject)
    if name == own:
        plane.silences.heard_own(CLOCK.monotonic())
        return
    try:
        heartbeat = BEATS.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return  # another control plane's, or of another version: no node is heard by it
    if heartbeat.node_id == name:
        plane.heard(heartbeat)


BEATS: Final = msgspec.json.Decoder(Heartbeat)


async def _beat(connection: Connection, subject: str) -> None:
    while True:
        await beat(connection, subject, b"{}")
        await asyncio.sleep(BEAT_EVERY_S)


async def dispatcher(stop: Stop) -> None:
    """The nodes were told what to run, by a fold of its own, until `stop`. Beside others it does no harm.

    Past a record that it cannot read it tells nothing: another one, of the version that wrote it, may know better.
    """
    settings = read(DispatcherSettings)
    async with connected(settings, "dispatcher") as connection, reading(settings) as reader:
        founded = await standing_log(connection, settings)
        values = LastValues(connection, DESIRED_STREAM)
        dispatching = Dispatcher(values, Subjects(settings.cell), lambda: caught_up and not cluster.unread)
        cluster, caught_up = Cluster(), False

        async def follow() -> None:
            nonlocal cluster, caught_up
            async for stretch in reader.follow(cluster.position):
                for recorded in stretch:
                    cluster = evolve(cluster, recorded)
                caught_up = caught_up or cluster.position >= founded.end
                dispatching.watch(cluster, stretch)

        await run_until_stopped(stop, follow(), dispatching.run())


async def gate(stop: Stop) -> None:
    """Asks and reports over NATS were taken in until `stop`."""
    settings = read(GateSettings)
    async with connected(settings, "gate") as connection:
        await standing_log(connection, settings)
        log = JetStreamLog(connection, settings.cell, source="gate")
        async with (
            open_gate(log, CLOCK, waiting_max=settings.waiting_max) as opened,
            serve(opened, connection, Subjects(settings.cell)),
        ):
            await stop.wait()


async def api(stop: Stop) -> None:
    """The HTTP API answered until `stop`, with a gate of its own."""
    settings = read(ApiSettings)
    async with (
        connected(settings, "api") as connection,
        reading(settings) as reader,
        database(settings, "api", size_max=8) as pool,
    ):
        await standing_log(connection, settings)
        log = JetStreamLog(connection, settings.cell, source="gate")
        async with open_gate(log, CLOCK, waiting_max=settings.waiting_max) as opened:
            parts = Parts(
                gate=opened,
                log=reader,
                pool=pool,
                connection=connection,
                subjects=Subjects(settings.cell),
                clock=CLOCK,
                open_reader=lambda: bare_reader(settings),
                reconcile=reconciled_by_child,
                reconcile_every_s=settings.reconcile_every_s,
                webhooks_allow=settings.webhooks_allow,
            )
            async with open_api(parts, host=settings.host, port=settings.port) as url:
                logger.info("api_listens", url=url)
                await stop.wait()


async def projector(stop: Stop) -> None:
    """The tables followed the log until `stop`."""
    settings = read(ReaderSettings)
    async with (
        connected(settings, "projector") as connection,
        reading(settings) as reader,
        database(settings, "projector") as pool,
    ):
        await standing_log(connection, settings)
        await run_until_stopped(stop, projecting(reader, pool))


async def projecting(reader: Reader, pool: Pool) -> None:
    """Never returns. What an operator has to mend is said, and looked at again; other parts of the process go on."""
    while True:
        try:
            await project(reader, pool, Progress())
        except Fault as fault:
            logger.error("tables_stand_still", code=fault.code, sentence=fault.sentence, hint=fault.hint)
            await asyncio.sleep(LOOK_AGAIN_S)


async def webhooks(stop: Stop) -> None:
    """Events were sent to whoever wants them until `stop`."""
    settings = read(WebhooksSettings)
    async with connected(settings, "webhooks") as connection:
        await standing_log(connection, settings)
    async with (
        reading(settings) as reader,
        database(settings, "webhooks") as pool,
        Post(CLOCK, settings.webhooks_allow) as post,
    ):
        kept = timedelta(days=settings.webhooks_kept_days)
        await run_until_stopped(stop, sending(lambda: Webhooks(reader, pool, post, CLOCK, kept=kept)))


async def sending(make: Callable[[], Webhooks]) -> None:
    """Never returns. What an operator has to mend is said, and looked at again; nothing is sent meanwhile."""
    while True:
        try:
            await make().run()
        except* Fault as faults:
            _stands_still(first_of(faults))
        except* LogFault as faults:
            _stands_still(first_of(faults))
        await asyncio.sleep(LOOK_AGAIN_S)


def _stands_still(fault: Fault | LogFault) -> None:
    logger.error("webhooks_stand_still", code=fault.code, sentence=str(fault), hint=fault.hint)


@asynccontextmanager
async def database(settings: CommonSettings, name: str, *, size_max: int = 4) -> AsyncIterator[Pool]:
    """Connections to PostgreSQL until the block is left. Raises `Fault`."""
    dsn = settings.postgres_dsn.get_secret_value()
    if not dsn:
        raise Fault("no_postgres", f"The {name} needs PostgreSQL.", "Set MUSTER_POSTGRES_DSN.")
    pool = await patient_pool(dsn, name=name, size_max=size_max)
    try:
        yield pool
    finally:
        pool.terminate()  # what is not committed is read from the log again


def first_of(group: BaseExceptionGroup[Trouble]) -> Trouble:
    """One of the faults: the others follow from it, or come up when it is mended."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
