"""`muster credits reconcile`: the fold of the log, the tables and the auditor's own sums of every account, side by side."""

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from events.amounts import spelled_credits
from events.base import spelled
from projections.tables.reconcile import Alarm, Reconciled, Sums, reconcile
from runtime.logging import configure
from runtime.settings import ReaderSettings
from services.main.parts import read_here
from services.main.tables import opened

SHOWN_MAX: Final = 50  # of alarms, rows and findings each: the rest is in --json
HEADS: Final = ("ACCOUNT", "BALANCE", "GRANTED", "ADJUSTED", "COMMITTED", "RESERVED", "OWED", "ENTRIES")


def run_reconcile(data_dir: Path, *, as_json: bool) -> int:
    """The exit code of `muster credits reconcile`: 0 when all three say the same, 1 when anything differs. Raises `Fault`."""
    configure(process="reconcile", level="error")
    settings = read_here(ReaderSettings, data_dir)

    async def work() -> Reconciled:
        async with opened(settings) as there:
            return await reconcile(there.reader, there.pool)

    found = asyncio.run(work())
    sys.stdout.write(msgspec.json.encode(document(found)).decode() if as_json else "\n".join(lines_of(found)))
    sys.stdout.write("\n")
    return 0 if found.same else 1


def document(found: Reconciled) -> dict[str, Any]:
    """All of it, for programs. Amounts are micro-credits."""
    said: dict[str, Any] = {"same": found.same, **msgspec.structs.asdict(found)}
    said["findings"] = [finding._asdict() for finding in found.findings]
    return said


def lines_of(found: Reconciled) -> list[str]:
    """The verdict for people: what every account has, then what differs and where."""
    rows = [HEADS, *(_row(name, sums) for name, sums in found.accounts.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = [
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    compared = (
        f"accounts: {len(found.accounts)}, entries: {found.entries}, records: {found.records}, up to position "
        f"{spelled(found.position)}"
    )
    if found.same:
        return [*lines, "", f"same    the log, the tables and the auditor agree to the micro-credit: {compared}"]
    lines += ["", f"DIFFER  {compared}"]
    lines += [f"        {_alarm(alarm)}" for alarm in found.alarms[:SHOWN_MAX]]
    for one in found.misfits[:SHOWN_MAX]:
        event = f"record {spelled(one.position)}, event {one.event_id}" if one.position else "no such record"
        says = f"the table says {_or_none(one.tables)}, the log {_or_none(one.log)}"
        lines.append(f"        {one.table} of {one.account}, {one.row}: {one.column}: {says} ({event})")
    lines += [f"        record {spelled(one.position)}: {one.law}: {one.message}" for one in found.findings[:SHOWN_MAX]]
    if found.broken > len(found.findings):
        lines.append(f"        and {found.broken - len(found.findings)} findings more; muster verify lists them")
    if found.unread:
        lines.append(
            f"        record {spelled(found.unread)} contradicts those before it: from there on nothing is decided"
        )
    return lines


def _row(name: str, sums: Sums) -> tuple[str, ...]:
    credit = (sums.balance_micro, sums.granted_micro, sums.adjusted_micro, sums.committed_micro, sums.reserved_micro)
    return (name, *map(spelled_credits, (*credit, sums.debt_micro)), str(sums.entry))


def _alarm(alarm: Alarm) -> str:
    said = {"the log": alarm.fold, "the auditor": alarm.audit, "the tables": alarm.tables}
    in_credits = alarm.what.endswith("_micro")
    texts = [
        f"{who} {spelled_credits(value) if in_credits else value}" for who, value in said.items() if value is not None
    ]
    return f"{alarm.account}: {alarm.what.removesuffix('_micro')}: {', '.join(texts)}"


def _or_none(value: str | int | None) -> str:
    return "nothing" if value is None else str(value)
