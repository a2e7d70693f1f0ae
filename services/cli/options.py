"""Options that several commands share, and the client that they lead to."""

import re
from pathlib import Path
from typing import Annotated

import typer

from services.cli.client import Client, Server
from services.cli.failure import ExitCode, Failure
from services.main.local import find_api

ApiUrl = Annotated[
    str,
    typer.Option(
        "--api-url",
        envvar="MUSTER_API_URL",
        metavar="URL",
        help="Where the API is. Default: the cluster started here or in a parent folder, else http://127.0.0.1:8080.",
        show_default=False,
    ),
]
Team = Annotated[str, typer.Option("--team", envvar="MUSTER_TEAM", metavar="NAME", help="The team that asks.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON with stable fields instead of text.")]
AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account's name.", show_default=False)]
JobIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]


def connect(api_url: str) -> Client:
    """A client of the API at `api_url`, or of the one that is found where the URL is empty."""
    if api_url and not api_url.startswith(("http://", "https://")):
        raise Failure("--api-url", f"{api_url!r} is no http:// or https:// address", code=ExitCode.USAGE)
    found = find_api(Path.cwd())
    server = Server(api_url.rstrip("/"), "--api-url or MUSTER_API_URL") if api_url else Server(*found)
    return Client(server)


def job_path(job_id: str, part: str = "") -> str:
    """The address of a job, or of a part of it. Raises `Failure` for what can be no id."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", job_id):
        raise Failure(repr(job_id), "cannot be a job's id", hint="muster jobs lists them", code=ExitCode.USAGE)
    return f"/jobs/{job_id}/{part}" if part else f"/jobs/{job_id}"


def account_path(account: str, part: str = "") -> str:
    """The address of an account, or of a part of it. Raises `Failure` for what can be no name of one."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", account):
        raise Failure(
            repr(account), "cannot be an account's name", hint="muster credits balance lists them", code=ExitCode.USAGE
        )
    return f"/credits/accounts/{account}/{part}" if part else f"/credits/accounts/{account}"


def month_named(command: str, month: str) -> str:
    """The month as it was typed, 2026-11. Raises `Failure` for what is none."""
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", month):
        raise Failure(command, f"{month!r} is no month: 2026-11 is one", code=ExitCode.USAGE)
    return month
