"""`muster agents`: the agents of the nodes, replaced in waves."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from services.cli.client import Client
from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.cli.node import Labels, in_parts, labels_of
from services.cli.options import ApiUrl, connect
from services.cli.standing import as_operator
from services.cli.table import counted
from services.main.local import CLOCK
from services.main.rollout import CAUSE, Plan, Rollout, Stopped, meant, span_s, waves

app = typer.Typer(name="agents", no_args_is_help=True, help="Replace the agents of nodes, in waves.")


@app.callback()
def agents() -> None:
    """Replace the agents of nodes, in waves."""


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def rollout(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="Replaces the agent of $MUSTER_NODE.", show_default=False)
    ],
    *,
    wave: Annotated[str, typer.Option("--wave", metavar="N|PERCENT", help="So many nodes at a time: 5, or 10%.")] = "1",
    label: Labels = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NAME", help="Only these nodes; may be repeated.")
    ] = None,
    version: Annotated[
        str, typer.Option("--to", metavar="VERSION", help="That the agents are to have: those that do are left alone.")
    ] = "",
    deadline: Annotated[
        str, typer.Option("--deadline", metavar="TIME", help="After which what still runs there is moved.")
    ] = "1h",
    within: Annotated[
        str, typer.Option("--within", metavar="TIME", help="How long a node may take to come back.")
    ] = "30m",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Of the drains.")] = "agents rollout",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which nodes, in which waves; do nothing.")] = False,
    api_url: ApiUrl = "",
) -> None:
    """Replace agents: drain a wave of nodes, run COMMAND for each, wait until it is well, use it again; then the next wave.

    COMMAND finds the node's name in MUSTER_NODE: `muster agents rollout --wave 5% -- sh -c 'ssh "$MUSTER_NODE" upgrade'`.
    It stops where a node does not come back, and where others fall ill: those in hand stay drained, the rest is left alone.
    Started again, it goes on with these first. What it does is on stderr, the nodes that are done on stdout.
    """
    try:
        plan = Plan(
            command=command,
            names=frozenset(node or []),
            labels=labels_of(label or []),
            wave=wave,
            deadline=deadline,
            deadline_s=span_s(deadline),
            within_s=span_s(within),
            version=version,
            reason=reason,
        )
        list(waves([{}], wave))
    except ValueError as error:
        raise Failure("rollout", str(error), code=ExitCode.USAGE) from error
    with connect(api_url) as client:
        api = ByClient(client)
        if dry_run:
            _rehearse(api, plan)
            return
        try:
            done = asyncio.run(Rollout(api, plan, CLOCK, say, print).run())
        except Stopped as stopped:
            raise Failure("rollout", f"stopped: {stopped}", hint=stopped.hint) from stopped
    say(f"rollout: {counted(done, 'agent')} replaced")


rollout.__doc__ = f"{rollout.__doc__}\n\n{EXIT_CODES}"


def _rehearse(api: "ByClient", plan: Plan) -> None:
    """The waves are on stdout, and what is left alone, and why, on stderr."""
    todo, passed = meant(api.nodes(), plan)
    for number, part in enumerate(waves(todo, plan.wave), 1):
        for one in part:
            busy = f"  {counted(one['runs'], 'run')}, {counted(one['gpus_used'], 'GPU')}" if one["runs"] else ""
            print(f"wave {number}  {one['node_id']}  agent {one['agent_version'] or '?'}{busy}")
    for why in passed:
        say(f"left alone: {why}")
    say(f"rollout: {counted(len(todo), 'agent')} would be replaced")


class ByClient:
    """What a rollout asks, over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._position = 0

    def nodes(self) -> list[dict[str, Any]]:
        """Every node, as of what was last said of any."""
        found: list[dict[str, Any]] = self._client.get("/nodes", {"min_position": self._position}, thing="nodes")[
            "nodes"
        ]
        return found

    def policy(self) -> Mapping[str, Any]:
        """The policy as a document."""
        found: Mapping[str, Any] = self._client.get("/policy", thing="policy")["document"]
        return found

    def drain(self, names: Sequence[str], reason: str, deadline: str) -> None:
        """These nodes are drained for an upgrade."""
        self._say("drain", names, {"reason": reason, "deadline": deadline, "cause": CAUSE})

    def undrain(self, names: Sequence[str], reason: str) -> None:
        """These nodes take work again."""
        self._say("undrain", names, {"reason": reason})

    def _say(self, word: str, names: Sequence[str], body: dict[str, Any]) -> None:
        headers = as_operator()
        for part in in_parts(list(names)):
            answer = self._client.post(f"/nodes/{word}", {"nodes": part, **body}, thing=word, headers=headers)
            self._position = max(self._position, int(answer["position"]))
