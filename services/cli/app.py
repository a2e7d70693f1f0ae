"""The muster command: what it is made of, and its entry."""

import typer

app = typer.Typer(name="muster", no_args_is_help=True, help="Submit jobs to a GPU cluster and follow what becomes of them.")


@app.callback()
def muster() -> None:
    """Submit jobs to a GPU cluster and follow what becomes of them."""


def main() -> None:
    """The command ran; its exit code is the process's."""
    app()
