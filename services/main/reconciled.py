"""Reconciling of credits for a process that has other things to do: in a process of its own, which answers with JSON."""

import asyncio
import os
import sys
from typing import Final

from runtime.fault import Fault

NICE: Final = 10  # whoever answers requests goes first
LATER: Final = "Are log and PostgreSQL there? Try again, or run muster credits reconcile."


async def reconciled_by_child() -> bytes:
    """What a process of its own compared, as JSON: with the settings of this one. Raises `Fault`.

    It reads the whole log into books that grow with it, which no process that answers others should hold.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "services.cli", "credits", "reconcile", "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=_in_the_background,
    )
    try:
        said, wrong = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode not in (0, 1) or not said:
        reason = wrong.decode(errors="replace").strip()
        raise Fault("not_reconciled", f"Credits could not be reconciled: {reason or child.returncode}.", LATER)
    return said


def _in_the_background() -> None:
    os.nice(NICE)
