"""`muster credits reconcile`: whether the log, the tables and an independent reading agree on every account."""

from pathlib import Path

import typer

from services.cli.cluster import DataDir
from services.cli.options import AsJson
from services.main.local import DATA_DIR


def reconcile(*, data_dir: DataDir = Path(DATA_DIR), as_json: AsJson = False) -> None:
    """Compare three sums of every account: the log's, the tables', and those of an auditor who counts all use himself.

    Reads log and tables, at one position, as `muster verify` does; changes nothing, and nobody waits for it. Exits with
    0 when all agree to the micro-credit; else with 1, and the accounts, entries and events that differ are on stdout.
    """
    from services.main.reconcile import run_reconcile

    raise typer.Exit(run_reconcile(data_dir, as_json=as_json))
