"""Job traces: CSV with the header `job_id,submit_s,gpus,nodes,runtime_s,team,gpu_type,priority`, in any order."""

import csv
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from math import ceil, isfinite
from typing import Final, NamedTuple

from events.base import JobId, TeamId
from events.job import JobSpec, Priority
from services.simulate.fault import BadFile
from services.simulate.work import COMMAND, US, Work, classes_of

NEEDED: Final = ("job_id", "submit_s", "gpus", "runtime_s")
KNOWN: Final = (*NEEDED, "estimate_s", "nodes", "team", "gpu_type", "priority")
ROWS_MAX: Final = 5_000_000
GPUS_MAX: Final = 1_000_000  # of one job
SECONDS_MAX: Final = 100 * 365 * 86_400
TEAM: Final = TeamId("trace")  # all jobs are one team's


class Row(NamedTuple):
    """A job of a trace."""

    line: int
    job_id: str
    submit_s: float
    gpus: int
    runtime_s: float
    estimate_s: float  # as declared; the true runtime where the file does not say
    priority: str


def read_trace(lines: Iterable[str]) -> list[Work]:
    """The jobs of a trace, in order of submission, those of one instant as they stand in the file.

    Columns `nodes`, `team` and `gpu_type` are read over: the pool is of one type, and one team's. `priority` is the name
    of a class, or a number, the larger the more urgent. What is declared is whole seconds, rounded up, and 1 at the
    least. Raises: `BadFile`, with the line.
    """
    rows = list(_rows(lines))
    if not rows:
        raise BadFile(0, "it has no jobs")
    classes = _classes(rows)
    rows.sort(key=lambda row: row.submit_s)
    return [_work(row, classes[row.priority]) for row in rows]


def _work(row: Row, priority: Priority) -> Work:
    declared_s = max(1, ceil(row.estimate_s))
    spec = JobSpec(
        name=row.job_id,
        command=COMMAND,
        gpus=row.gpus,
        priority=priority,
        max_runtime_s=declared_s,
        stop_grace_s=0,
        retries_infrastructure=0,
    )
    return Work(JobId(row.job_id), TEAM, spec, round(row.submit_s * US), round(row.runtime_s * US))


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    table = csv.DictReader(lines, strict=True)
    seen: set[str] = set()
    try:
        _check_header(table.fieldnames)
        for cells in table:
            line = table.line_num
            if None in cells or None in cells.values():
                raise BadFile(
                    line, f"it has another number of cells than the header, which has {len(cells) - (None in cells)}"
                )
            row = _row(line, cells)
            if row.job_id in seen:
                raise BadFile(line, f"job {row.job_id!r} stands above already")
            seen.add(row.job_id)
            if len(seen) > ROWS_MAX:
                raise BadFile(line, f"a trace has at most {ROWS_MAX} jobs")
            yield row
    except csv.Error as error:
        raise BadFile(table.line_num + 1, f"not CSV: {error}") from error


def _check_header(names: Iterable[str] | None) -> None:
    given = list(names or ())
    if not given:
        raise BadFile(0, "it is empty", hint=f"its first line has to name the columns: {','.join(NEEDED)}")
    for name in given:
        if name not in KNOWN:
            near = get_close_matches(name, KNOWN, 1)
            hint = f"did you mean {near[0]}?" if near else f"columns are {', '.join(KNOWN)}"
            raise BadFile(1, f"there is no column {name!r}", hint=hint)
        if given.count(name) > 1:
            raise BadFile(1, f"column {name} is there twice")
    if missing := [name for name in NEEDED if name not in given]:
        raise BadFile(1, f"column {missing[0]} is missing", hint=f"a trace has at least {','.join(NEEDED)}")


def _row(line: int, cells: dict[str, str]) -> Row:
    if not cells["job_id"]:
        raise BadFile(line, "job_id is empty")
    runtime_s = _number(line, cells, "runtime_s")
    return Row(
        line=line,
        job_id=cells["job_id"],
        submit_s=_number(line, cells, "submit_s"),
        gpus=_gpus(line, cells["gpus"]),
        runtime_s=runtime_s,
        estimate_s=_number(line, cells, "estimate_s") if cells.get("estimate_s") else runtime_s,
        priority=cells.get("priority", ""),
    )


def _number(line: int, cells: dict[str, str], name: str) -> float:
    try:
        value = float(cells[name])
    except ValueError:
        raise BadFile(line, f"{name} is {cells[name]!r}, not a number of seconds") from None
    if not isfinite(value) or not 0 <= value <= SECONDS_MAX:
        raise BadFile(line, f"{name} is {cells[name]}; it goes from 0 to {SECONDS_MAX}")
    return value


def _gpus(line: int, text: str) -> int:
    try:
        gpus = int(text)
    except ValueError:
        raise BadFile(line, f"gpus is {text!r}, not a whole number") from None
    if not 1 <= gpus <= GPUS_MAX:
        raise BadFile(line, f"gpus is {gpus}; a job has 1 to {GPUS_MAX}")
    return gpus


def _classes(rows: list[Row]) -> dict[str, Priority]:
    """The class that each word in the column `priority` means."""
    names = {"": Priority.NORMAL, **{name.value: name for name in Priority}}
    numbers: dict[int, str] = {}
    for row in rows:
        if row.priority in names:
            continue
        try:
            numbers.setdefault(int(row.priority), row.priority)
        except ValueError:
            hint = f"it is one of {', '.join(Priority)}, or a whole number"
            raise BadFile(row.line, f"priority is {row.priority!r}", hint=hint) from None
    try:
        classes = classes_of(set(numbers))
    except ValueError as error:
        raise BadFile(0, f"column priority: {error}") from None
    spelt = {row.priority for row in rows} - names.keys()
    return {**names, **{word: classes[int(word)] for word in sorted(spelt)}}
