"""`muster credits statement`: tables with totals, CSV and JSON, a page at a time."""

import csv
import io
import json
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from services.cli.statement import CSV
from services.cli.table import credits_of
from tests.services.cli.network import Network


def entry(number: int, kind: str, change: int, balance: int, **more: Any) -> dict[str, Any]:
    """An entry, with amounts in millionths."""
    amount = more.pop("amount", abs(change))
    money = {"change": change, "balance": balance, "amount": amount}
    told = {name: credits_of(value) for name, value in money.items()} | {
        f"{name}_micro": v for name, v in money.items()
    }
    return told | {
        "account": "red", "entry": number, "at": "2026-11-03T10:00:00Z", "kind": kind, "run_id": "", "job_id": "", "team": "",
        "reservation": 0, "cause": "", "reason": "", "by": "", "ask_id": "", "gpu_us": 0, "gpu_hours": "0", "of_entry": 0,
        "evidence": [], "position": 40 + number, "event_id": f"main-{number}", "gpus": 0, "covers_s": 0,
        "until": None, **more,
    }  # fmt: skip


ENTRIES = [
    entry(1, "granted", 100_000_000, 100_000_000, reason='order "7", of May', by="api:ada"),
    entry(2, "reserved", -5_000_000, 95_000_000, run_id="j1-1", gpus=2, covers_s=3_600),
    entry(3, "committed", 0, 95_000_000, amount=1_250_000, run_id="j1-1", cause="interrupted", gpu_us=1_800_000_000),
    entry(4, "refunded", 3_750_000, 98_750_000, run_id="j1-1", cause="interrupted", evidence=["main-2", "main-3"]),
]
TOTALS = [
    {"kind": "granted", "entries": 1, "change": "100", "change_micro": 100_000_000, "amount": "100"},
    {"kind": "committed", "entries": 1, "change": "0", "change_micro": 0, "amount": "1.25"},
    {"kind": "refunded", "entries": 1, "change": "-1.25", "change_micro": -1_250_000, "amount": "1.25"},
]


def page(*entries: dict[str, Any], cursor: int | None = None, first: bool = True) -> tuple[int, dict[str, Any]]:
    """An answer of the API."""
    totals = TOTALS if first else None
    return 200, {"account": "red", "entries": list(entries), "totals": totals, "next_cursor": cursor, "position": 9}


def invoke(network: Network, *args: str) -> str:
    """What is on stdout."""
    done = CliRunner().invoke(app, ["credits", "statement", "red", *args, "--api-url", network.url])
    assert done.exit_code == 0, done.output
    return done.stdout_bytes.decode()


def test_a_table_has_every_entry_and_totals(network: Network) -> None:
    """What changes no balance is in parentheses; pages follow each other under one header."""
    network.answers.extend([page(*ENTRIES[:2], cursor=2), page(*ENTRIES[2:], first=False)])
    lines = invoke(network, "--month", "2026-11").splitlines()
    assert lines[0].split() == ["ENTRY", "TIME", "WHAT", "AMOUNT", "BALANCE", "GPU-HOURS", "RUN", "WHY"]
    cells = [line.split() for line in lines[1:5]]
    assert [(row[0], row[3], row[4], row[5]) for row in cells] == [
        ("1", "granted", "+100", "100"),
        ("2", "reserved", "-5", "95"),
        ("3", "committed", "(1.25)", "95"),
        ("4", "refunded", "+3.75", "98.75"),
    ]
    assert lines[1].endswith('order "7", of May, by ada')
    assert lines[2].endswith("j1-1  2 GPUs for 1h 00m")
    assert lines[3].endswith("0.500  j1-1  interrupted")
    assert lines[5] == ""
    assert lines[-1].split() == ["all", "3", "98.75"]
    assert [path for path, _ in network.asked] == [
        "/v1/credits/accounts/red/statement?month=2026-11&limit=500",
        "/v1/credits/accounts/red/statement?month=2026-11&limit=500&cursor=2",
    ]


def test_a_charge_of_nothing_is_told_and_what_has_no_amount_is_not(network: Network) -> None:
    """A run that was waived whole is committed with 0."""
    waived = entry(1, "committed", 0, 5, run_id="j1-1")
    network.answers.append(page(waived, entry(2, "refused", 0, 5, cause="not_covered", reason="has 5")))
    _, first, second, *_ = invoke(network).splitlines()
    assert (first.split()[3:5], second.split()[3:5]) == (["committed", "(0)"], ["refused", "0.000005"])


def test_entries_about_a_time_say_which(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long an instalment more lasts, and until when what is reserved does."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    more = entry(1, "renewed", -1, 5, covers_s=1_800)
    last = entry(2, "running_out", 0, 5, until="2026-11-03T12:30:00Z")
    network.answers.append(page(more, last, entry(3, "reserved", -1, 4, gpus=1, covers_s=90)))
    _, first, second, third, *_ = invoke(network).splitlines()
    monkeypatch.undo()
    time.tzset()
    assert first.endswith("  30m 00s more")
    assert second.endswith("  until 2026-11-03 12:30:00")
    assert third.endswith("  1 GPU for 1m 30s")


def test_csv_can_be_read_by_anyone(network: Network) -> None:
    """RFC 4180: a header, CR LF, quotes doubled; columns are those that were promised, numbers are plain."""
    network.answers.extend([page(*ENTRIES[:2], cursor=2), page(*ENTRIES[2:], first=False)])
    text = invoke(network, "--format", "csv")
    head, first, *_ = text.split("\r\n")
    assert head == (
        "account,entry,at,kind,change,balance,amount,run_id,job_id,team,reservation,cause,reason,by,ask_id,gpu_hours,"
        "of_entry,evidence,position,event_id,gpus,covers_s,until"
    )
    assert (
        first
        == 'red,1,2026-11-03T10:00:00Z,granted,100,100,100,,,,0,,"order ""7"", of May",api:ada,,0,0,,41,main-1,0,0,'
    )
    assert text.count("\r\n") == text.count("\n") == 5
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["change"] for row in rows] == ["100", "-5", "0", "3.75"]
    assert rows[3]["evidence"] == "main-2 main-3"
    assert set(rows[0]) == set(CSV)


def test_json_is_a_document_a_line(network: Network) -> None:
    """Every field as the API has it."""
    network.answers.extend([page(*ENTRIES[:2], cursor=2), page(*ENTRIES[2:], first=False)])
    assert [json.loads(line) for line in invoke(network, "--format", "json").splitlines()] == ENTRIES
    network.answers[:] = [page(*ENTRIES)]
    assert [json.loads(line) for line in invoke(network, "--json").splitlines()] == ENTRIES


def test_what_is_refused_leaves_nothing_on_stdout(network: Network) -> None:
    """No header either; what is no month is not asked."""
    network.answers.append((404, {"code": "account_not_found", "detail": "account: there is no account 'red'"}))
    done = CliRunner().invoke(app, ["credits", "statement", "red", "--format", "csv", "--api-url", network.url])
    assert (isinstance(done.exception, Failure), done.stdout) == (True, "")
    done = CliRunner().invoke(app, ["credits", "statement", "red", "--month", "2026-13", "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, "'2026-13' is no month" in str(done.exception)) == (ExitCode.USAGE, True)
    assert len(network.asked) == 1


def test_only_the_last_ones_are_shown(network: Network) -> None:
    """And none that were written while they were read."""
    network.answers.extend([page(*ENTRIES[1:3], cursor=3), page(*ENTRIES[3:], entry(5, "granted", 1, 1), first=False)])
    told = invoke(network, "--limit", "3", "--kind", "granted", "--kind", "refunded", "--format", "json")
    assert [json.loads(line)["entry"] for line in told.splitlines()] == [2, 3, 4]
    assert network.asked[0][0].endswith("?kind=granted&kind=refunded&last=3&limit=2000")


def test_an_account_without_entries_says_so(network: Network) -> None:
    """A table with nothing in it has its header, CSV likewise."""
    network.answers.append((200, page()[1] | {"totals": []}))
    done = CliRunner().invoke(app, ["credits", "statement", "red", "--api-url", network.url])
    assert (done.exit_code, done.stdout.split()[0], "there are no entries" in done.stderr) == (0, "ENTRY", True)
    assert invoke(network, "--format", "csv") == ",".join(CSV) + "\r\n"
    assert invoke(network, "--format", "json") == ""
    done = CliRunner().invoke(app, ["credits", "statement", "red", "--format", "xml", "--api-url", network.url])
    assert done.exit_code == 2
