"""`muster credits export`: what a month is charged with, as a file for a billing system."""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import httpx
import typer

from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.cli.options import ApiUrl, connect, month_named
from services.cli.place import shown

PATH: Final = "/credits/export"
PIECE: Final = 1 << 16  # bytes


class Format(StrEnum):
    """What a file may be."""

    FOCUS_CSV = "focus-csv"
    FOCUS_PARQUET = "focus-parquet"
    FOCUS_METADATA = "focus-metadata"
    LAGO = "lago"
    STRIPE = "stripe"
    OPENMETER = "openmeter"


def export(
    *,
    month: Annotated[str, typer.Option("--month", metavar="YYYY-MM", help="Of UTC: 2026-11.", show_default=False)],
    form: Annotated[
        Format,
        typer.Option("--format", help="A FOCUS 1.2 dataset, what describes one, or events, one a line.", show_default=False),
    ],
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help="Only of this account.")] = None,
    team: Annotated[
        str | None, typer.Option("--team", metavar="NAME", help="Only of this team; grants are of none.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to; it is there once it is whole. Default: stdout.")
    ] = None,
    currency: Annotated[
        str | None, typer.Option("--currency", metavar="USD", help="What credits are sold for. With --rate.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="0.40", help="What a credit costs in that currency.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Whose GPUs they are, in FOCUS. Default: Musterbook.")
    ] = None,
    api_url: ApiUrl = "",
) -> None:  # fmt: skip
    """What was used, granted and corrected in a month. Of a month that is closed, always the same, byte for byte.

    The file is on stdout, or in FILE; on stderr whether the month is closed, and the SHA-256 of the file, as
    `sha256sum --check` reads it. docs/billing.md says what is in which column, and how to send events only once.
    """
    if out is None and form is Format.FOCUS_PARQUET and sys.stdout.isatty():
        raise Failure(
            "--out", "a Parquet file is not for a terminal", hint="--out FILE, or | or >", code=ExitCode.USAGE
        )
    params = {
        "month": month_named("export", month),
        "format": form.value,
        "account": account,
        "team": team,
        "currency": currency,
        "rate": rate,
        "provider": provider,
    }
    digest, size = hashlib.sha256(), 0
    with connect(api_url) as client, client.download(PATH, params, thing="export") as response:
        with _written(out) as file:
            try:
                for piece in response.iter_bytes(PIECE):
                    file.write(piece)
                    digest.update(piece)
                    size += len(piece)
            except httpx.TransportError as error:
                raise _broken(out, size) from error
        _say(month, response.headers)
    print(f"{digest.hexdigest()}  {out or '-'}", file=sys.stderr, flush=True)


export.__doc__ = f"{export.__doc__}\n\n{EXIT_CODES}"


@contextmanager
def _written(out: Path | None) -> Iterator[BinaryIO]:
    """Where the file goes: stdout, or a file that takes the place of `out` when it is whole. Raises `Failure`."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    except OSError as error:
        raise Failure(str(out), f"cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _broken(out: Path | None, size: int) -> Failure:
    """The failure of an export that was cut off."""
    left = f"what is on stdout is not whole: {size:,} bytes" if out is None else "nothing was written"
    return Failure(
        "export", f"it broke off; {left}", hint="try again; the API's log says why", code=ExitCode.UNREACHABLE
    )


def _say(month: str, headers: httpx.Headers) -> None:
    position = shown(int(headers.get("muster-position", "0")))
    if headers.get("muster-closed") == "true":
        say(f"{month} is closed, at position {position}: this is what it will always be")
    else:
        say(f"{month} is open, and shown up to position {position}: there may be more")
