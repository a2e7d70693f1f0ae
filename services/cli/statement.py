"""`muster credits statement`: every record of an account, as a table, CSV or JSON, a page at a time."""

import csv
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from services.cli.client import Client
from services.cli.failure import EXIT_CODES, say
from services.cli.options import AccountArgument, ApiUrl, account_path, connect, month_named
from services.cli.table import Column, counted, credits_of, duration, parse_time, print_pages, print_table

PAGE_MAX: Final = 2_000
SCREEN: Final = 500  # entries of a page that is shown as a table
CSV: Final = (  # stable: a column that is new comes last
    "account", "entry", "at", "kind", "change", "balance", "amount", "run_id", "job_id", "team", "reservation", "cause",
    "reason", "by", "ask_id", "gpu_hours", "of_entry", "evidence", "position", "event_id", "gpus", "covers_s", "until",
)  # fmt: skip
WITHOUT: Final = frozenset({"refused", "running_out", "closed"})  # kinds that have no amount
COLUMNS: Final = (
    Column("ENTRY", right=True, drop=3),
    Column("TIME"),
    Column("WHAT"),
    Column("AMOUNT", right=True),
    Column("BALANCE", right=True),
    Column("GPU-HOURS", right=True, drop=4),
    Column("RUN", drop=1),
    Column("WHY", drop=2, wraps=True),
)
TOTALS: Final = (
    Column("TOTAL"),
    Column("ENTRIES", right=True),
    Column("AMOUNT", right=True),
    Column("CHANGES THE BALANCE BY", right=True),
)


class Format(StrEnum):
    """How a statement is shown."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def statement(
    account: AccountArgument,
    *,
    month: Annotated[
        str | None, typer.Option("--month", metavar="YYYY-MM", help="Only of this month, of UTC: 2026-11.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="A table with totals, CSV, or one JSON document a line.")] = Format.TABLE,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only these, such as granted or committed. May be repeated."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the last so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As --format json.")] = False,
    api_url: ApiUrl = "",
) -> None:  # fmt: skip
    """Every record of an account, the oldest first, with the balance after each.

    AMOUNT is what the balance changed by. In parentheses: what changes no balance, as when credits that were reserved are
    committed; reserved credits are not in the balance.
    """
    if month is not None:
        month_named("statement", month)
    with connect(api_url) as client:
        pages = Pages(client, account, {"month": month, "kind": kind, "last": limit}, limit)
        if as_json or form is Format.JSON:
            for page in pages.of(PAGE_MAX):
                sys.stdout.writelines(json.dumps(entry) + "\n" for entry in page)
        elif form is Format.TABLE:
            print_pages(COLUMNS, ([_row(entry) for entry in page] for page in pages.of(SCREEN)))
            _print_totals(pages.totals)
        else:
            _print_csv(pages)


statement.__doc__ = f"{statement.__doc__}\n\n{EXIT_CODES}"


class Pages:
    """The entries of an account that fit, as they are read: never more than a page of them at once."""

    def __init__(self, client: Client, account: str, which: dict[str, Any], limit: int | None) -> None:
        self._client = client
        self._account = account
        self._which = which
        self._left = limit  # entries that are written meanwhile are beyond what was asked for
        self.totals: list[dict[str, Any]] = []  # of all that fit, once the first page is read

    def of(self, size: int) -> Iterator[list[dict[str, Any]]]:
        """Pages of so many entries at the most; the first one also if there are none."""
        cursor: int | None = None
        while True:
            asked = {**self._which, "limit": size, "cursor": cursor}
            answer = self._client.get(account_path(self._account, "statement"), asked, thing=self._account)
            if cursor is None:
                self.totals = answer["totals"]
            page = answer["entries"][: self._left]
            yield page
            cursor = answer["next_cursor"]
            if self._left is not None:
                self._left -= len(page)
            if cursor is None or self._left == 0:
                return


def _print_csv(pages: Pages) -> None:
    """RFC 4180: a header, and lines that end in CR LF; several CloudEvents ids of one entry are separated by spaces."""
    writer = csv.DictWriter(sys.stdout, CSV, extrasaction="ignore", lineterminator="\r\n")
    for number, page in enumerate(pages.of(PAGE_MAX)):
        if not number:
            writer.writeheader()
        writer.writerows({**entry, "evidence": " ".join(entry["evidence"])} for entry in page)


def _row(entry: dict[str, Any]) -> list[str]:
    at = parse_time(entry["at"])
    assert at is not None
    return [
        str(entry["entry"]),
        f"{at.astimezone():%Y-%m-%d %H:%M:%S}",
        str(entry["kind"]).replace("_", " "),
        _amount(entry),
        str(entry["balance"]),
        _hours(entry),
        str(entry["run_id"]),
        _why(entry),
    ]


def _amount(entry: dict[str, Any]) -> str:
    """`+100`, `-48`; `(12)` where no balance changes by it; empty where there is none."""
    if change := int(entry["change_micro"]):
        return f"+{entry['change']}" if change > 0 else str(entry["change"])
    return "" if entry["kind"] in WITHOUT else f"({entry['amount']})"


def _hours(entry: dict[str, Any]) -> str:
    """To the thousandth, which is seconds: the exact number is in the other formats."""
    return f"{int(entry['gpu_us']) / 3_600_000_000:.3f}" if int(entry["gpu_us"]) else ""


def _why(entry: dict[str, Any]) -> str:
    """What it is reserved for; the cause, what somebody said, and who."""
    parts = [str(entry["cause"]).replace("_", " ") if entry["cause"] != "operator" else "", str(entry["reason"])]
    told = ": ".join(part for part in parts if part)
    of = f"of entry {entry['of_entry']}" if entry["of_entry"] else ""
    by = f"by {str(entry['by']).removeprefix('api:')}" if entry["by"] else ""
    return ", ".join(part for part in (_span(entry), told, of, by) if part)


def _span(entry: dict[str, Any]) -> str:
    """`8 GPUs for 24h 00m`, `1h 00m more`, `until 2026-11-03 10:00:00`; empty for what is about no span."""
    if until := parse_time(entry["until"]):
        return f"until {until.astimezone():%Y-%m-%d %H:%M:%S}"
    gpus, covers_s = int(entry["gpus"]), int(entry["covers_s"])
    if not covers_s:
        return ""
    return f"{counted(gpus, 'GPU')} for {duration(covers_s)}" if gpus else f"{duration(covers_s)} more"


def _print_totals(totals: list[dict[str, Any]]) -> None:
    if not totals:
        say("there are no entries")
        return
    print()
    whole = sum(int(total["change_micro"]) for total in totals)
    rows = [
        [_plain(total["kind"]), str(total["entries"]), str(total["amount"]), str(total["change"])] for total in totals
    ]
    print_table(TOTALS, [*rows, ["all", str(sum(int(total["entries"]) for total in totals)), "", credits_of(whole)]])


def _plain(kind: object) -> str:
    return str(kind).replace("_", " ")
