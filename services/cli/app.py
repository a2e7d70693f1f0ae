"""The muster command: what it is made of, and its entry."""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from services.cli import (
    agents,
    alarms,
    backup,
    chapters,
    cluster,
    credits,  # noqa: A004  # hides a word that only a prompt needs
    drain,
    events,
    fleet,
    inject,
    jobs,
    logs,
    node,
    policy,
    queue,
    simulate,
    submit,
    webhooks,
    why,
)
from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.main.local import Fault

app = typer.Typer(
    name="muster",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # or lines break where those of the docstring do
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)

JOBS, LOOK, OPERATE, RUN = "Jobs", "Looking", "Operating", "Running a cluster"
AWAY = frozenset({"no_cluster", "nats_unreachable", "nats_away", "no_answer"})  # faults of servers that do not answer
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}

app.command(rich_help_panel=JOBS)(submit.submit)
app.command(rich_help_panel=JOBS, context_settings=PASS_ON)(submit.run)
for of_jobs in (jobs.jobs, jobs.job, why.why, logs.logs, jobs.wait, jobs.cancel, jobs.resume):
    app.command(rich_help_panel=JOBS)(of_jobs)
for looking in (fleet.nodes, fleet.queues, fleet.promises, alarms.alarms, events.events):
    app.command(rich_help_panel=LOOK)(looking)
for of_nodes in (drain.drain, drain.undrain, drain.maintain, drain.retire, drain.show):
    node.app.command()(of_nodes)
node.app.command("inject")(inject.inject)
node.app.command("return")(alarms.give_back)
for operating in (queue, policy, node, agents, credits, webhooks, chapters):
    app.add_typer(operating.app, rich_help_panel=OPERATE)
for running in (
    cluster.up,
    cluster.demo,
    cluster.rebuild,
    cluster.verify,
    backup.backup,
    backup.restore,
    cluster.serve,
    cluster.agent,
):
    app.command(rich_help_panel=RUN)(running)
app.add_typer(simulate.app, name="simulate", rich_help_panel=LOOK)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        print(version("musterbook"))
        raise typer.Exit(ExitCode.OK)


@app.callback()
def muster(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Submit jobs to a GPU cluster and follow what becomes of them."""
    try:
        Path.cwd()
    except FileNotFoundError as gone:
        hint = "go to one that is there: clusters, specs and workdirs are looked for from it"
        raise Failure("this folder", "has been removed", hint=hint, code=ExitCode.USAGE) from gone


def main() -> None:
    """The command ran; its exit code is the process's. What the user can mend is a message, never a traceback."""
    try:
        app()
    except Failure as failure:
        failure.show()
        sys.exit(failure.code)
    except Fault as fault:
        say(fault.sentence)
        if fault.hint:
            say(f"hint: {fault.hint}")
        sys.exit(ExitCode.UNREACHABLE if fault.code in AWAY else ExitCode.REFUSED)
    except BrokenPipeError:  # whoever reads our output has had enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
