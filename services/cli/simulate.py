"""`muster simulate …`: the deciders on a virtual clock, on a list of jobs, a trace, a workload, or the live log."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from services.cli.cluster import DataDir
from services.cli.failure import ExitCode, Failure, say
from services.cli.options import AsJson
from services.cli.place import parsed
from services.cli.progress import progress
from services.cli.simulated import show, shown
from services.cli.specfile import Spec, read_document
from services.main.local import DATA_DIR

if TYPE_CHECKING:
    from services.main.simulate import Outcome

app = typer.Typer(
    no_args_is_help=True, help="Try a policy on a virtual clock: the very same deciders, no cluster needed."
)

NODES_MAX: Final = 100_000
WORKLOAD: Final = "for instance examples/simulated-teams.yaml"


class Policy(StrEnum):
    """Which of the nodes that hold a job gets it."""

    BEST_FIT = "best-fit"
    FIRST_FIT = "first-fit"
    SPREAD = "spread"


class Order(StrEnum):
    """Which waiting job is tried first."""

    FIFO = "fifo"
    SJF = "sjf"
    PRIORITY = "priority"


class Backfill(StrEnum):
    """Whether jobs may pass one that cannot start."""

    NONE = "none"
    EASY = "easy"
    CONSERVATIVE = "conservative"


File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]
Nodes = Annotated[int, typer.Option("--nodes", min=1, max=NODES_MAX, help="Nodes of the pool.")]
GpusPerNode = Annotated[int, typer.Option("--gpus-per-node", min=1, max=63, help="GPUs of each.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.svg", help="Also draw it: use, queue, waits by size.")
]


@app.command()
def place(
    *,
    jobs: Annotated[Path, typer.Option("--jobs", metavar="FILE", help="One GPU count a line.")],
    nodes: Nodes,
    gpus_per_node: GpusPerNode = 8,
    policy: Annotated[
        Policy, typer.Option("--policy", help="Which of the nodes that hold a job gets it.")
    ] = Policy.BEST_FIT,
    as_json: AsJson = False,
) -> None:
    """Place jobs in order on empty nodes, without time. One that does not fit is rejected and skipped."""
    from services.main import simulate

    with _told(jobs):
        document = simulate.place(jobs, (nodes, gpus_per_node), policy.value)
    if as_json:
        print(json.dumps(document))
        return
    show(document)


@app.command()
def trace(
    file: File,
    *,
    nodes: Nodes,
    gpus_per_node: GpusPerNode = 8,
    order: Annotated[Order, typer.Option("--order", help="Which waiting job is tried first.")] = Order.FIFO,
    backfill: Annotated[
        Backfill, typer.Option("--backfill", help="Whether jobs may pass one that cannot start.")
    ] = Backfill.EASY,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Replay the jobs of a trace, FILE.csv or FILE.csv.gz, whose first line has job_id,submit_s,gpus,runtime_s.

    Further columns: estimate_s, what a job declares (else its true runtime), and priority. Waits and times to completion are in
    seconds; a job larger than the pool is dropped and counted.
    """
    from services.main import simulate

    _check_plot(plot)
    with _told(file), progress(file.name) as watch:
        outcome = simulate.trace(file, (nodes, gpus_per_node), (order.value, backfill.value), watch)
    _draw(plot, outcome, f"{file.name}: {nodes} x {gpus_per_node} GPUs, {order.value}, backfill {backfill.value}")
    _print(outcome, as_json=as_json)


@app.command()
def workload(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML; - is stdin.", show_default=False)],
    *,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what the file leaves to chance.")] = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Run a workload, FILE.yaml: nodes, queues, policy and streams of jobs, or a performance workload of Kueue's."""
    from services.main import simulate

    _check_plot(plot)
    typed = read_document(file, "a workload", WORKLOAD)
    with _meant(typed), progress(Path(file).name) as watch:
        outcome = simulate.workload(typed.body, seed, watch)
    _draw(plot, outcome, str(outcome.document["name"] or Path(file).name))
    _print(outcome, as_json=as_json)


@app.command()
def log(
    *,
    data_dir: DataDir = Path(DATA_DIR),
    at: Annotated[
        int, typer.Option("--at", metavar="POS", parser=parsed, help="From this position. Default: the end.")
    ] = 0,
    runtime_default: Annotated[
        int, typer.Option("--runtime-default", metavar="SECONDS", min=1, help="Of jobs that declared none.")
    ] = 3_600,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="FILE", help="Queues to try, as `muster queue apply` takes them.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="FILE", help="A policy to try, as `muster policy apply` takes it.")
    ] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Run on from the live log: when will what waits start, if nothing more comes? Nothing is written."""
    from services.main import simulate

    _check_plot(plot)
    documents = {
        name: read_document(file, f"a {name} file", "") if file else None
        for name, file in (("queues", queues), ("policy", policy))
    }
    instead = simulate.Instead(**{name: spec.body if spec else None for name, spec in documents.items()})
    with _meant(*documents.values()):
        outcome = simulate.log(data_dir, at, runtime_default, instead)
    _draw(plot, outcome, f"From {shown('at', outcome.document['at'])} on")
    _print(outcome, as_json=as_json)


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """What is wrong with the file is a failure that names it, and the line."""
    from services.main.simulate import BadFile

    try:
        yield
    except BadFile as bad:
        where = f"{file}:{bad.line}" if bad.line else str(file)
        raise Failure(where, bad.reason, hint=bad.hint, code=ExitCode.USAGE) from bad


@contextmanager
def _meant(*typed: Spec | None) -> Iterator[None]:
    """What is wrong with a document is a failure that names the line of the field it begins with."""
    from services.main.simulate import BadFile

    try:
        yield
    except BadFile as bad:
        given = [spec for spec in typed if spec is not None]
        where = next(
            (spec.where(bad.reason) for spec in given if spec.where(bad.reason) != spec.origin), given[0].origin
        )
        raise Failure(where, bad.reason, hint=bad.hint, code=ExitCode.USAGE) from bad


def _check_plot(plot: Path | None) -> None:
    if plot is not None and plot.suffix != ".svg":
        raise Failure("--plot", f"{plot} is no .svg file, and pictures are SVG", code=ExitCode.USAGE)


def _draw(plot: Path | None, outcome: "Outcome", title: str) -> None:
    if plot is None:
        return
    try:
        plot.write_text(outcome.svg(title), "utf-8")
    except OSError as error:
        raise Failure(str(plot), f"cannot be written: {error.strerror}") from error


def _print(outcome: "Outcome", *, as_json: bool) -> None:
    """The document is on stdout: the same for the same input. How long it took is said on stderr, for people."""
    if as_json:
        print(json.dumps(outcome.document))
        return
    say(
        f"{outcome.document['jobs']:,} jobs in {outcome.simulation.rounds:,} rounds, simulated in {outcome.seconds:.1f} s"
    )
    show(outcome.document)
