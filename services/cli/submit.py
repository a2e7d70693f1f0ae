"""`muster submit` and `muster run`: a job spec becomes a job; optionally the command stays until it has ended."""

import json
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.client import Client, Refusal
from services.cli.ended import exit_code_of, say_end, wait_for
from services.cli.failure import EXIT_CODES, ExitCode, say
from services.cli.logs import Which, follow_logs
from services.cli.options import ApiUrl, AsJson, Team, connect
from services.cli.specfile import Spec, name_of, parse_pairs, read_spec
from services.cli.why import print_dry_run

Key = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="KEY", help="Idempotency key: the same key again is the same job. Default: a new one.",
        show_default=False,
    ),
]  # fmt: skip
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="Longest wait; the job goes on after it.")
]

Account = Annotated[
    str | None,
    typer.Option(
        "--account", metavar="NAME", help="Who pays, of the accounts that the team may charge. Default: the first."
    ),
]

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what would become of it: when, where, at whose cost. Nothing is submitted."),
]


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The job spec, a YAML file; - is stdin.")],
    *,
    key: Key = None,
    team: Team = "",
    account: Account = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the job has ended; exit with its code.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Like --wait, with the job's output on stdout.")] = False,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Submit the job described in FILE. Its id, and nothing else, is on stdout (with --follow: on stderr)."""
    with connect(api_url) as client:
        spec = read_spec(file)
        if account is not None:
            spec.body["account"] = account
        if dry_run:
            _try(client, spec, team=team, as_json=as_json)
            return
        answer = _submitted(client, spec, key=key, team=team)
        _show_answer(answer, as_json=as_json, output_follows=follow)
        if wait or follow:
            _stay(client, answer, follow=follow, timeout_s=timeout)


submit.__doc__ = f"{submit.__doc__}\n\n{EXIT_CODES}"


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD…", help="The program and its arguments.")],
    *,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs of the whole job: one rank each.")] = 1,
    nodes: Annotated[int | None, typer.Option("--nodes", metavar="N", help="Spread evenly over so many nodes.")] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Default: from the program.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="May be repeated.")] = None,
    workdir: Annotated[str, typer.Option("--workdir", metavar="DIR", help="Default: this folder.")] = ".",
    gpu_type: Annotated[list[str] | None, typer.Option("--gpu-type", metavar="TYPE", help="May be repeated.")] = None,
    min_gpus: Annotated[int | None, typer.Option("--min-gpus", metavar="N", help="Start with so many at least.")] = None,
    within: Annotated[str | None, typer.Option("--within", metavar="DOMAIN", help="All in one rack, or spine.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Only nodes that have it.")] = None,
    tolerate: Annotated[list[str] | None, typer.Option("--tolerate", metavar="TAINT", help="Also nodes that have it.")] = None,
    priority: Annotated[str | None, typer.Option("--priority", metavar="CLASS", help="low, normal, high, urgent.")] = None,
    max_runtime: Annotated[str | None, typer.Option("--max-runtime", metavar="TIME", help="90s, 10m, 1h30m.")] = None,
    retries: Annotated[int | None, typer.Option("--retries", metavar="N", help="After a rank failed.")] = None,
    key: Key = None,
    team: Team = "",
    account: Account = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the id and return at once.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it has ended, without its output.")] = False,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:  # fmt: skip
    """Run CMD as a job, show its output, and exit as it does. Ctrl-C leaves the job running."""
    given: dict[str, Any] = {
        "name": name or name_of(command), "command": command, "gpus": gpus, "env": parse_pairs("--env", env or []) or None,
        "workdir": str((Path.cwd() / workdir).resolve()), "gpu_types": gpu_type, "priority": priority,
        "max_runtime": max_runtime, "retries_application": retries, "nodes": nodes, "min_gpus": min_gpus,
        "topology": within, "labels": parse_pairs("--label", label or []) or None, "tolerates": tolerate, "account": account,
    }  # fmt: skip
    spec = Spec({field: value for field, value in given.items() if value is not None}, "run", {})
    with connect(api_url) as client:
        if dry_run:
            _try(client, spec, team=team, as_json=as_json)
            return
        answer = _submitted(client, spec, key=key, team=team)
        follow = not detach and not wait
        _show_answer(answer, as_json=as_json, output_follows=follow)
        if not detach:
            _stay(client, answer, follow=follow, timeout_s=timeout)


run.__doc__ = f"{run.__doc__}\n\n{EXIT_CODES}"


def _submitted(client: Client, spec: Spec, *, key: str | None, team: str) -> dict[str, Any]:
    """The answer to a submit that was accepted. The key is made here, before the first try: a retry is the same job."""
    if key is not None and not key:
        raise typer.BadParameter("--key is empty: is a variable unset? Leave it out for a key of its own")
    return _post(client, "/jobs", {"team": team, "key": key or str(uuid.uuid4()), "spec": spec.body}, spec)


def _try(client: Client, spec: Spec, *, team: str, as_json: bool) -> None:
    """What would become of the job is on stdout. Raises `typer.Exit` where it would be rejected."""
    answer = _post(client, "/jobs:dry-run", {"team": team, "spec": spec.body}, spec)
    if as_json:
        print(json.dumps(answer))
    else:
        print_dry_run(answer, client.now)
    if answer["outcome"] == "rejected":
        raise typer.Exit(ExitCode.REFUSED)


def _post(client: Client, path: str, body: dict[str, Any], spec: Spec) -> dict[str, Any]:
    """The answer; a refusal names the line of the spec that it is about."""
    try:
        return client.post(path, body, thing=spec.origin)
    except Refusal as refusal:
        place = spec.where(refusal.reason)
        raise Refusal(place, refusal.reason, hint=refusal.hint, code=refusal.code, named=refusal.named) from refusal


def _show_answer(answer: dict[str, Any], *, as_json: bool, output_follows: bool) -> None:
    if answer.get("repeated"):
        say(f"{answer['job_id']}: this key was used before: it is the same job")
    if as_json:
        print(json.dumps(answer), flush=True)
    elif output_follows:
        say(f"{answer['job_id']}: submitted")
    else:
        print(answer["job_id"], flush=True)


def _stay(client: Client, answer: dict[str, Any], *, follow: bool, timeout_s: float | None) -> None:
    """Raises `typer.Exit` with the job's own code once it has ended."""
    job_id, position = str(answer["job_id"]), int(answer["position"])
    try:
        if follow:
            follow_logs(client, job_id, Which(since=position), timeout_s=timeout_s)
        job = wait_for(client, job_id, since=position, timeout_s=timeout_s, tell=not follow)
    except KeyboardInterrupt:
        say(f"{job_id}: goes on without this command")
        say(f"hint: muster logs -f {job_id}; muster wait {job_id}; muster cancel {job_id}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    say_end(job)
    raise typer.Exit(exit_code_of(job))
