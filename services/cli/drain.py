"""`muster node drain`, `undrain`, `maintain`, `retire` and `show`: nodes are emptied, come back, or go for good."""

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from services.cli.client import Client
from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.cli.gpus import print_gpus, what_returns
from services.cli.node import Labels, Names, Wanted, in_parts
from services.cli.node_words import clock, drained_by, state_of, waits_for, window_in_words
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.place import shown
from services.cli.standing import as_operator
from services.cli.table import Column, ago, counted, duration, parse_time, print_table

Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: others will ask.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with what is written.")]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="30m|TIME", help="When what still runs is stopped and moved. Default: never."),
]
HELD_COLUMNS = (
    Column("JOB"),
    Column("NAME", drop=3),
    Column("TEAM", drop=2),
    Column("STATE"),
    Column("GPUS", right=True),
    Column("SINCE", drop=1),
    Column("ENDS BY"),
)


def drain(
    names: Names = None,
    *,
    label: Labels = None,
    reason: Why,
    deadline: Deadline = None,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Empty the nodes: nothing new comes, what runs finishes, or is checkpointed and moved at the deadline.

    *draining* while anything holds GPUs there, *drained* once nothing does: `muster nodes` shows which, and what is waited for.
    """
    body = {"reason": reason, "deadline": moment(deadline)}
    _say("drain", Wanted(names or [], label or []), body, as_json=as_json, api_url=api_url)


def undrain(
    names: Names = None, *, label: Labels = None, reason: Reason = "", as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Use the nodes again, whoever drained them; maintenance that has begun there is over. A cordon stays."""
    _say("undrain", Wanted(names or [], label or []), {"reason": reason}, as_json=as_json, api_url=api_url)


def maintain(
    names: Names = None,
    *,
    label: Labels = None,
    window: Annotated[str, typer.Option("--window", metavar="NAME", help="Its name, of each node.")] = "",
    starts: Annotated[str | None, typer.Option("--from", metavar="TIME", help="2h, or a time.")] = None,
    ends: Annotated[str | None, typer.Option("--to", metavar="TIME", help="5h, or a time.")] = None,
    cancel: Annotated[str, typer.Option("--cancel", metavar="NAME", help="The window is not needed, or over.")] = "",
    reason: Reason = "",
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Have the nodes empty for a while: what would not end before it is not placed there; what runs still is moved in time.

    Times are those of this machine, or with their zone, or how long from now. The same name again replaces the window.
    """
    wanted = Wanted(names or [], label or [])
    if bool(window) == bool(cancel):
        raise Failure("maintain", "which window? --window NAME, or --cancel NAME", code=ExitCode.USAGE)
    if window and not (starts and ends):
        raise Failure("maintain", "from when to when? --from TIME --to TIME", code=ExitCode.USAGE)
    body: dict[str, Any] = {"window": window or cancel, "reason": reason}
    body |= {"cancel": True} if cancel else {"starts": moment(starts), "ends": moment(ends)}
    _say("maintain", wanted, body, as_json=as_json, api_url=api_url)


def retire(
    names: Names = None,
    *,
    label: Labels = None,
    reason: Why,
    deadline: Deadline = None,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Drain the nodes for good: once they are empty they count no more, and never join again under their names.

    Until then `muster node undrain` takes it back.
    """
    body = {"reason": reason, "deadline": moment(deadline)}
    _say("retire", Wanted(names or [], label or []), body, as_json=as_json, api_url=api_url)


def show(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Its name.", show_default=False)],
    *,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """A node: what it is, what keeps it from use, and what runs there. `muster node NAME` is short for it."""
    with connect(api_url) as client:
        node = client.get(f"/nodes/{_path(name)}", thing=name)
        if as_json:
            print(json.dumps(node))
            return
        for title, told in _facts(node, client.now):
            print(f"{title:<12}{told}")
        print_gpus(node, client.now)
        if node["held"]:
            print()
            print_table(HELD_COLUMNS, [_held_row(run, client.now) for run in node["held"]])
        if advice := what_returns(node):
            say(f"hint: {advice}")


for command in (drain, undrain, maintain, retire, show):
    command.__doc__ = f"{command.__doc__}\n\n{EXIT_CODES}"


def moment(typed: str | None) -> str | None:
    """A time without a zone is one of this machine's; all else is as typed: the server says what is wrong with it."""
    try:
        found = datetime.fromisoformat(typed) if typed is not None else None
    except ValueError:
        return typed
    return found.astimezone().isoformat() if found is not None and found.tzinfo is None else typed


def _path(name: str) -> str:
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise Failure(repr(name), "cannot be a node's name", hint="muster nodes lists them", code=ExitCode.USAGE)
    return name


def _say(word: str, wanted: Wanted, body: dict[str, Any], *, as_json: bool, api_url: str) -> None:
    """The word is said of the nodes; how each of them stands now is on stdout, a line each."""
    with connect(api_url) as client:
        for names in in_parts(wanted.found(client)):
            headers = as_operator()
            if body.get("cancel"):
                _warn(client, names, body["window"])
            answer = client.post(f"/nodes/{word}", {"nodes": names, **body}, thing=word, headers=headers)
            if as_json:
                print(json.dumps(answer))
                continue
            _tell(client, answer)
            at = f"at position {shown(answer['position'])}"
            done = "was so already: nothing was written" if answer["repeated"] else at
            say(f"{word}: {counted(len(answer['nodes']), 'node')}, {done}")


def _warn(client: Client, names: list[str], window: str) -> None:
    """A window that none of the nodes has may be misspelt: that is said, with those that they have."""
    planned = {
        str(one["window"])
        for node in client.get("/nodes", thing="nodes")["nodes"]
        if node["node_id"] in names
        for one in node["windows"]
    }
    if window not in planned:
        say(f"maintain: no window {window!r} is planned there; there is {', '.join(sorted(planned)) or 'none'}")


def _tell(client: Client, answer: dict[str, Any]) -> None:
    """How the nodes stand, now that this was said of them."""
    nodes = {node["node_id"]: node for node in client.get("/nodes", {"min_position": answer["position"]})["nodes"]}
    found = [nodes[name] for name in answer["nodes"]]
    width = max(len(node["node_id"]) for node in found)
    state_width = max(len(state_of(node)) for node in found)
    for node in found:
        told = waits_for(node, client.now) if node["drain"] else _planned(node, client.now)
        print(f"{node['node_id']:<{width}}  {state_of(node):<{state_width}}  {told}".rstrip())


def _planned(node: dict[str, Any], now: datetime) -> str:
    return "; ".join(window_in_words(window, now) for window in node["windows"])


def _facts(node: dict[str, Any], now: datetime) -> list[tuple[str, str]]:
    """What there is to say of a node, line by line."""
    lines = [
        ("node", f"{node['node_id']}  {state_of(node)}"),
        ("gpus", _gpus(node)),
        ("address", str(node["address"])),
        ("agent", f"{node['agent_version'] or 'of no known version'}, joined {ago(node['joined_at'], now)}"),
        ("labels", " ".join(f"{key}={value}" for key, value in sorted(node["labels"].items()))),
        ("taints", " ".join(node["taints"])),
        ("drain", drained_by(node, now) if node["drain"] else ""),
        ("deadline", _deadline(node, now)),
        ("retired", ago(node["retired_at"], now)),
        ("cordoned", _cordoned(node, now)),
        *(("window", window_in_words(window, now)) for window in node["windows"]),
        ("silent", _silence(node)),
        ("clock", _clock(node.get("clock_ahead_s"))),
        ("faults", f"a score of {node['lemon_score']} for 30 days, as last judged" if node.get("lemon_score") else ""),
    ]
    return [(title, told) for title, told in lines if told]


def _gpus(node: dict[str, Any]) -> str:
    parts = [
        f"{node[f'gpus_{kind}']} {kind}"
        for kind in ("used", "cleaning", "free", "out", "earmarked")
        if node.get(f"gpus_{kind}")
    ]
    told = ", ".join(parts) or "none is used or free"
    sick = f"; {node['gpus_sick']} sick" if node.get("gpus_sick") else ""  # out, or used until its run has ended
    return f"{counted(node['gpus_total'], node['gpu_type'] or 'GPU')}: {told}{sick}"


def _deadline(node: dict[str, Any], now: datetime) -> str:
    drain = node["drain"] or {}
    if not drain or drain.get("drained_at"):
        return ""
    at = parse_time(drain.get("deadline"))
    if at is None:
        return "none: what runs there may take its time"
    return (
        f"{clock(at, now)}: what runs there still is checkpointed and moved" if at > now else f"{clock(at, now)}, past"
    )


def _cordoned(node: dict[str, Any], now: datetime) -> str:
    if not node["cordoned"]:
        return ""
    reason = f": {node['cordon_reason']}" if node["cordon_reason"] else ""
    return f"{ago(node['cordoned_at'], now)} by {node['cordoned_by'] or 'an operator'}{reason}"


def _silence(node: dict[str, Any]) -> str:
    """How long it has been silent, and how long that was borne."""
    if node.get("silent_s") is None:
        return ""
    borne = f"; given up after {duration(node['patience_s'])}" if node.get("patience_s") else ""
    return f"for {duration(node['silent_s'])} when it was last judged{borne}"


def _clock(ahead_s: float | None) -> str:
    if not ahead_s:
        return ""
    return f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} the control plane's; it decides nothing"


def _held_row(run: dict[str, Any], now: datetime) -> list[str]:
    ends = parse_time(run["ends_by"])
    return [
        str(run["job_id"]),
        str(run["name"]),
        str(run["team"]),
        str(run["state"]),
        str(run["gpus"]),
        ago(run["since"], now),
        clock(ends, now) if ends is not None else "nobody said",
    ]
