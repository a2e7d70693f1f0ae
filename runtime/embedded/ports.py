"""Ports on loopback: chosen once per folder and remembered there, so that a restart is found where it was."""

import hashlib
import json
import socket
from pathlib import Path
from typing import Final

from runtime.fault import Fault

LOWEST: Final = 20_000
COUNT: Final = 12_000  # up to 32,000: below the range from which the kernel takes ports for outgoing connections
TRIES_MAX: Final = 500


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port(folder: Path, *, avoid: frozenset[int] = frozenset()) -> int:
    """A free port. Where the search begins depends on the folder, so that two folders rarely want the same."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).digest()
    start = int.from_bytes(digest[:4], "big")
    for step in range(TRIES_MAX):
        port = LOWEST + (start + step * 7) % COUNT
        if port not in avoid and is_free(port):
            return port
    raise Fault("no_free_port", f"None of {TRIES_MAX} ports tried is free.", "Are very many servers left running here?")


class RememberedPorts:
    """The ports of one folder's servers, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "ports.json"

    def choose(self, name: str, *, wanted: int = 0, avoid: frozenset[int] = frozenset()) -> int:
        """The port for `name`: the one wanted if not 0, else the one remembered if it is free, else a new one."""
        known = self._known()
        port = wanted or known.get(name, 0)
        if not wanted and (port == 0 or not is_free(port)):
            port = free_port(self._folder, avoid=avoid.union(known.values()))
        if known.get(name) != port:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(known | {name: port}) + "\n")
        return port

    def _known(self) -> dict[str, int]:
        try:
            return {str(name): int(port) for name, port in json.loads(self._path.read_text()).items()}
        except (FileNotFoundError, ValueError):
            return {}  # a wrong memory is none: another port does as well
