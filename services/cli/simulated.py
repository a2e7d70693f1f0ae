"""Documents of simulations as tables for people."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from services.cli.table import Column, duration, parse_time, print_table

STATISTICS: Final = ("mean", "p50", "p90", "p99")
JOBS_SHOWN_MAX: Final = 40  # --json has them all
MINUTE_S: Final = 60


class Table(NamedTuple):
    """Columns and rows."""

    columns: list[Column]
    rows: list[list[str]]


def show(document: Mapping[str, Any]) -> None:
    """The document is on stdout, as tables with a line between them."""
    for number, table in enumerate(tables(document)):
        if number:
            print()
        print_table(*table)


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """The tables of a document, the most important first."""
    if "time_to_admission_ms" in document:
        yield _beside(document)
        return
    if "wait_mean_s" in document:
        yield _spreads("SECONDS", dict.fromkeys(("wait", "completion"), document), named=True)
    yield _figures(document)
    for name in ("teams", "sizes"):
        if document.get(name):
            title = {"teams": "TEAM", "sizes": "GPUS"}[name]
            yield _spreads(title, document[name], named=False)
    if document.get("by_job"):
        yield _jobs(document["by_job"])


def _figures(document: Mapping[str, Any]) -> Table:
    """All that is one number and not part of another table."""
    plain = {
        name: value
        for name, value in document.items()
        if not isinstance(value, dict | list) and not name.startswith(("wait_", "completion_")) and value != ""
    }
    return Table([Column("FIGURE"), Column("VALUE", right=True)], [[name, shown(name, v)] for name, v in plain.items()])


def _spreads(title: str, of: Mapping[str, Mapping[str, Any]], *, named: bool) -> Table:
    """A row a group, with its waits; `named`: the groups are the figures themselves."""
    counted = [] if named else ["jobs"]
    columns = [Column(title), *(Column(name.upper(), right=True) for name in (*counted, *STATISTICS))]
    rows = []
    for group, figures in of.items():
        kind = group if named else "wait"
        spans = [span(figures[f"{kind}_{statistic}_s"]) for statistic in STATISTICS]
        rows.append([group, *(f"{figures[name]:,}" for name in counted), *spans])
    return Table(columns, rows)


def _beside(document: Mapping[str, Any]) -> Table:
    """Our figures beside the published and the ideal ones."""
    published, ideal = document["published"], document["ideal"].get("skip_what_does_not_fit", {})
    classes = document["time_to_admission_ms"]
    rows = [
        [name, *(_number(one.get(name)) for one in (document, published, ideal))]
        for name in ("wall_ms", "queue_usage_percent")
    ]
    for group, ours in classes.items():
        others = (one.get("time_to_admission_ms", {}).get(group) for one in (published, ideal))
        rows.append([f"time_to_admission_ms {group}", _number(ours), *map(_number, others)])
    rows += [[name, _number(document[name]), "", ""] for name in ("jobs", "unfinished", "evictions")]
    titles = ("MUSTERBOOK", "KUEUE", "IDEAL")
    return Table([Column(document["name"].upper()), *(Column(title, right=True) for title in titles)], rows)


def _jobs(jobs: list[dict[str, Any]]) -> Table:
    """The jobs that waited, those that start first on top."""
    waiting = sorted(
        (job for job in jobs if job["waiting"]), key=lambda job: (job["starts_in_s"] is None, job["starts_in_s"])
    )
    titles = ("JOB", "TEAM", "GPUS", "STARTS IN", "WAITED", "ENDS IN")
    rows = [
        [
            job["job_id"],
            job["team"],
            str(job["gpus"]),
            *(_when(job[name]) for name in ("starts_in_s", "wait_s", "ends_in_s")),
        ]
        for job in waiting[:JOBS_SHOWN_MAX]
    ]
    return Table([Column(title, right=title == "GPUS") for title in titles], rows)


def _when(seconds: float | None) -> str:
    return "never" if seconds is None else duration(seconds)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def shown(name: str, value: object) -> str:
    """A figure for people: spans in their largest units, shares in percent, moments to the second."""
    if isinstance(value, int | float):
        if name == "utilisation":
            return f"{value:.1%}"
        return span(value) if name.endswith("_s") else f"{value:,}"
    moment = parse_time(value) if name == "at" else None
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment is not None else str(value)


def span(seconds: float) -> str:
    """A span: below a minute to a tenth of a second."""
    return f"{seconds:.1f}s" if 0 < seconds < MINUTE_S else duration(seconds)
