"""`muster up`, `serve`, `agent`, `demo`, `rebuild` and `verify`: processes that run here, started through services.main."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.failure import ExitCode, Failure
from services.cli.options import AsJson
from services.main.local import DATA_DIR

DataDir = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", envvar="MUSTER_DATA_DIR", help="Where the cluster keeps its data.")
]
NODES_MAX = 64  # agents of one machine, each a process of its own


def up(
    *,
    data_dir: DataDir = Path(DATA_DIR),
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=NODES_MAX, help="Simulated nodes; 0: none.")] = 4,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=1, max=63, help="Simulated GPUs of each.")] = 8,
    racks: Annotated[
        int,
        typer.Option("--racks", min=0, max=NODES_MAX, help="Racks of the simulated nodes, filled in order; 0: none."),
    ] = 0,
    spines: Annotated[
        int, typer.Option("--spines", min=0, max=NODES_MAX, help="Spines of these racks, filled in order; 0: none.")
    ] = 0,
    host: Annotated[str, typer.Option("--host", help="The address that the API listens on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0: a free one. Default: 8080, or a free one.")
    ] = None,
    team: Annotated[
        list[str] | None, typer.Option("--team", metavar="NAME", help="May use NATS itself; may be repeated.")
    ] = None,
    lost_after_s: Annotated[
        float | None,
        typer.Option(
            "--lost-after-s", min=3.0, help="Silence after which a node is lost, whatever runs there; kept in the log."
        ),
    ] = None,
) -> None:
    """Run a whole cluster here, in the foreground: NATS, PostgreSQL, control plane, API, and simulated nodes.

    Ctrl-C ends it in order. Jobs that run live on, and the next `muster up` on the same folder adopts them; `kill -9`
    of everything at any moment is survived in the same way. To end the jobs too, cancel them first.
    """
    from services.main.up import Plan, run_up

    plan = Plan(
        data_dir=data_dir.resolve(),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        racks=racks,
        spines=spines,
        host=host,
        port=port,
        teams=tuple(team or ()),
        lost_after_s=lost_after_s,
    )
    raise typer.Exit(run_up(plan))


def serve(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="control, dispatcher, gate, api, projector.")],
) -> None:
    """Run parts of the control plane in this process, until SIGTERM or Ctrl-C.

    control: decides; several may run, one leads. dispatcher: tells nodes what to run. gate: takes asks and reports over
    NATS. api: HTTP, with a gate of its own. projector: keeps the tables. Settings come from the environment:
    MUSTER_NATS_URLS, MUSTER_NATS_USER, MUSTER_NATS_PASSWORD, MUSTER_POSTGRES_DSN, MUSTER_CELL, MUSTER_HOST, MUSTER_PORT.
    """
    from services.main.serve import PARTS, run_parts

    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise Failure("serve", f"there is no part {unknown[0]!r}: {', '.join(PARTS)}", code=ExitCode.USAGE)
    raise typer.Exit(run_parts(tuple(dict.fromkeys(names))))


def agent() -> None:
    """Run the agent of this node, until SIGTERM or Ctrl-C; ranks live on. Settings come from the environment."""
    from services.main.serve import run_agent

    raise typer.Exit(run_agent())


def demo(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder, and say where it is.")] = False,
) -> None:
    """Start a cluster, run the examples on it, break a GPU, show what happened, check the log, and leave nothing behind.

    Exits with 0 when the gang succeeded and the check of the log found nothing.
    """
    from services.cli.demo import run_demo

    raise typer.Exit(run_demo(keep=keep))


def rebuild(*, data_dir: DataDir = Path(DATA_DIR), as_json: AsJson = False) -> None:
    """Build the tables anew from the log, beside the live ones, and swap them in. The cluster may run."""
    from services.main.tables import run_rebuild

    raise typer.Exit(run_rebuild(data_dir, as_json=as_json))


def verify(*, data_dir: DataDir = Path(DATA_DIR), as_json: AsJson = False) -> None:
    """Rebuild the tables from the log, compare them row by row with the live ones, and check the log itself.

    Exits with 0 when all is as it should be, 1 when something differs.
    """
    from services.main.tables import run_verify

    raise typer.Exit(run_verify(data_dir, as_json=as_json))
