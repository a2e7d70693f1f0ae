"""`muster backup` and `muster restore`: the log and the tables into a folder, and back into empty servers."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.cluster import DataDir
from services.main.local import DATA_DIR


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the copy goes: not there yet, or empty.")],
    *,
    data_dir: DataDir = Path(DATA_DIR),
    logs: Annotated[bool, typer.Option("--logs", help="The output of ranks too.")] = False,
) -> None:
    """Copy the log, whole, and the tables of one moment, while everything goes on.

    Of the cluster that runs on the data directory, or of the servers that MUSTER_NATS_URLS, MUSTER_NATS_USER,
    MUSTER_NATS_PASSWORD and MUSTER_POSTGRES_DSN name; the user must be allowed to manage streams.
    """
    from services.main.backup import run_backup

    raise typer.Exit(run_backup(folder.resolve(), data_dir, logs=logs))


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What muster backup wrote.")],
    *,
    data_dir: DataDir = Path(DATA_DIR),
    tables: Annotated[
        bool, typer.Option("--tables/--no-tables", help="Also the tables; without: they are left as they are.")
    ] = True,
    beyond: Annotated[
        int,
        typer.Option(
            "--beyond",
            min=0,
            metavar="CHAPTER",
            help="The newest chapter of the log that was lost, if it was rolled since.",
        ),
    ] = 0,
) -> None:
    """Put a copy into servers that have no log yet: those of a data directory on which nothing runs, or as `backup`.

    A copy that is damaged is refused before anything is written. The log goes on in a new chapter, so that nothing that
    came after the copy, and is lost, can be taken for what comes now.
    """
    from services.main.backup import run_restore

    raise typer.Exit(run_restore(folder.resolve(), data_dir.resolve(), tables=tables, beyond=beyond))
