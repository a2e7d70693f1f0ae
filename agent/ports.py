"""The ports at which gangs whose first rank is on this node meet: a block of its own for each agent of a machine."""

import hashlib
import socket
from pathlib import Path
from typing import Final

from runtime.fault import Fault

BLOCK: Final = 64  # slot n of a run's first rank uses base + n
LOWEST: Final = 10_000
HIGHEST: Final = 20_000  # below the range from which the kernel takes ports for outgoing connections
STEP: Final = BLOCK + 1  # behind the block one more port, which its agent holds to show that the block is taken
BLOCKS: Final = (HIGHEST - LOWEST) // STEP


def free_block(data_dir: Path) -> tuple[int, socket.socket]:
    """The base of a free block, and the socket that holds it. Where the search begins depends on the folder."""
    digest = hashlib.sha256(str(data_dir.absolute()).encode()).digest()
    first = int.from_bytes(digest[:4], "big")
    for number in range(BLOCKS):
        base = LOWEST + (first + number) % BLOCKS * STEP
        if (marker := held(base)) is not None:
            if all(_is_free(base + slot) for slot in range(BLOCK)):
                return base, marker
            marker.close()
    raise Fault("no_free_ports", f"No {BLOCK} ports in a row are free below {HIGHEST}.", "What listens on them all?")


def held(base: int) -> socket.socket | None:
    """The socket that shows that the block is taken; None where another agent has it."""
    marker = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        marker.bind(("127.0.0.1", base + BLOCK))
        marker.listen(1)
    except OSError:
        marker.close()
        return None
    return marker


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
