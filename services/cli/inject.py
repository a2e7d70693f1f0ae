"""`muster node inject`: simulated GPUs of a node on this machine show a sign of trouble, so that what follows can be tried."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.main.inject import Wish, wished
from services.main.local import Fault

NOT_FOUND = frozenset({"no_such_node", "no_such_gpu", "no_cluster_here"})
UNCLEAR = frozenset({"wish_unclear", "no_such_signal"})


def inject(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.", show_default=False)],
    *,
    xid: Annotated[int | None, typer.Option("--xid", metavar="N", help="An error report of the driver.")] = None,
    signal: Annotated[
        str | None, typer.Option("--signal", metavar="KIND", help="Another sign: hot, throttled, missing, …")
    ] = None,
    code: Annotated[
        int | None, typer.Option("--code", metavar="N", help="With --signal: degrees, link, action, number of errors.")
    ] = None,
    gpu: Annotated[
        int | None, typer.Option("--gpu", metavar="N", help="Which one, from 0. Default: the first; with --clear all.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="They show nothing any more, as after repair.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", envvar="MUSTER_DATA_DIR", help="The cluster's, or the node's own."),
    ] = None,
) -> None:
    """Let simulated GPUs of a node show a sign of trouble. Works on the machine of the node; no API is asked."""
    try:
        injected = wished(node, Wish(xid, signal, code, gpu, clear), data_dir, Path.cwd())
    except Fault as fault:
        exit_code = ExitCode.NOT_FOUND if fault.code in NOT_FOUND else ExitCode.REFUSED
        exit_code = ExitCode.USAGE if fault.code in UNCLEAR else exit_code
        raise Failure("inject", fault.sentence, hint=fault.hint, code=exit_code) from fault
    say(f"inject: {injected.gpus} of {node} will show {injected.what}")
    say(
        "inject: its agent takes that in at its next look; muster events -f shows what it reports and what follows"
        if injected.agent_runs
        else "inject: its agent does not run: it takes that in when it is started"
    )


inject.__doc__ = f"{inject.__doc__}\n\n{EXIT_CODES}"
