"""`muster webhooks`: send events to URLs, signed; see what became of them; send them again."""

import json
import re
import secrets
import time
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import uuid4

import typer

from services.cli.client import Client, Json
from services.cli.failure import EXIT_CODES, ExitCode, Failure, say
from services.cli.options import ApiUrl, AsJson, connect
from services.cli.place import shown as spelled
from services.cli.standing import as_operator
from services.cli.table import Column, ago, duration, parse_time, print_table
from services.main.local import CLOCK
from services.webhooks.signature import SECRET_BYTES, spell_secret

app = typer.Typer(
    name="webhooks",
    no_args_is_help=True,
    help="Send events to URLs, signed, and see what became of them.",
    epilog=EXIT_CODES,
)

COLUMNS: Final = (
    Column("WEBHOOK"),
    Column("STATE"),
    Column("URL"),
    Column("TYPES", drop=1),
    Column("TEAMS", drop=2),
    Column("ACCOUNTS", drop=3),
    Column("MADE", drop=4),
    Column("DESCRIPTION", drop=5),
)
DELIVERY_COLUMNS: Final = (
    Column("POSITION", right=True),
    Column("TYPE"),
    Column("STATE"),
    Column("ATTEMPTS", right=True, drop=2),
    Column("STATUS", right=True, drop=1),
    Column("LAST", drop=4),
    Column("NEXT TRY", drop=3),
    Column("PROBLEM", drop=5),
    Column("ID", drop=6),
)
ROOT: Final = "musterbook."
ANSWER_S: Final = 25.0  # for a test: longer than one attempt may take
LOOK_EVERY_S: Final = 0.2

Webhook = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id.", show_default=False)]
Types = Annotated[
    list[str],
    typer.Option("--types", metavar="TYPE", help="As job.placed or job.*; by commas, or repeated.", show_default=False),
]
Teams = Annotated[list[str] | None, typer.Option("--team", metavar="NAME", help="Only jobs of it; may be repeated.")]
Accounts = Annotated[
    list[str] | None, typer.Option("--account", metavar="NAME", help="Only credits of it; may be repeated.")
]
Grace = Annotated[
    int, typer.Option("--grace", metavar="SECONDS", min=0, help="The secrets before it sign so long too.")
]
State = Annotated[
    str | None, typer.Option("--state", metavar="STATE", help="Only waiting, delivered, failed or disabled ones.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")]
After = Annotated[
    str, typer.Option("--after", metavar="MOMENT", help="A time, 2h ago, or a position as 1:27.", show_default=False)
]
Before = Annotated[str, typer.Option("--before", metavar="MOMENT", help="Likewise. Default: all until now.")]


@app.command()
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="https://…", show_default=False)],
    types: Types,
    *,
    team: Teams = None,
    account: Accounts = None,
    description: Annotated[str, typer.Option("--description", metavar="TEXT")] = "",
    as_json: AsJson = False,
    api_url: ApiUrl = "",
) -> None:
    """Send events to URL from now on. Prints the webhook's id, and the secret that signs: it is never shown again."""
    secret = spell_secret(secrets.token_bytes(SECRET_BYTES))  # made here: a try without an answer is made again with it
    body = {
        "url": url,
        "types": [part for text in types for part in text.split(",") if part],
        "teams": team or [],
        "accounts": account or [],
        "description": description,
        "key": uuid4().hex,
        "secret": secret,
    }
    with connect(api_url) as client:
        made = client.post("/webhooks", body, thing=url, headers=as_operator())
    if as_json:
        print(json.dumps(made | {"secret": secret}))
        return
    print(made["endpoint_id"])
    print(secret)
    say(f"events behind position {spelled(made['after'])} are sent there; keep the secret, it is not shown again")


@app.command("list")
def list_(*, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """All webhooks, oldest first. --json: one document a line."""
    with connect(api_url) as client:
        found = client.get("/webhooks", thing="webhooks")["webhooks"]
        if as_json:
            for one in found:
                print(json.dumps(one))
            return
        print_table(COLUMNS, [_row(one, client) for one in found])


def _row(one: Json, client: Client) -> list[str]:
    return [
        str(one["endpoint_id"]),
        _state(one),
        str(one["url"]),
        ",".join(str(pattern).removeprefix(ROOT) for pattern in one["types"]),
        ",".join(one["teams"]),
        ",".join(one["accounts"]),
        ago(one["created_at"], client.now),
        str(one["description"]),
    ]


def _state(one: Json) -> str:
    """`on`; `disabled`, and why, where it was not an operator who did it."""
    stopped = "" if one["stopped"] == "operator" else str(one["stopped"])
    return "on" if one["enabled"] else ": ".join(part for part in ("disabled", stopped) if part)


@app.command()
def show(webhook: Webhook, *, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """One webhook: what it gets, how many deliveries are in each state, its last replays. --json: one document."""
    with connect(api_url) as client:
        one = client.get(_path(webhook), thing=webhook)
        if as_json:
            print(json.dumps(one))
            return
        counts = ", ".join(f"{number} {state}" for state, number in one["deliveries"].items() if number)
        lines = {
            "webhook": one["endpoint_id"],
            "url": one["url"],
            "state": _state(one) + (f", quiet until {one['quiet_until']}" if one["quiet_until"] else ""),
            "types": " ".join(one["types"]),
            "teams": " ".join(one["teams"]),
            "accounts": " ".join(one["accounts"]),
            "description": one["description"],
            "since": f"position {spelled(one['after'])}, {ago(one['created_at'], client.now)} by {one['created_by']}",
            "secrets": f"{one['secrets']} sign",
            "deliveries": counts or "none yet",
        }
    for name, text in lines.items():
        if text:
            print(f"{name:<12}{text}")
    for replay in one["replays"]:
        print(f"{'replay':<12}{_replay(replay)}")


def _replay(replay: Json) -> str:
    """`1:2 to 1:90: 12 events, done`."""
    state = "done" if replay["ended_at"] else f"at {spelled(replay['reached'])}"
    return f"behind {spelled(replay['after'])} up to {spelled(replay['until'])}: {replay['matched']} events, {state}"


@app.command()
def remove(webhook: Webhook, *, api_url: ApiUrl = "") -> None:
    """Send no more to it, and forget it with its secrets and deliveries."""
    with connect(api_url) as client:
        print(client.delete(_path(webhook), thing=webhook)["endpoint_id"])


@app.command()
def enable(webhook: Webhook, *, api_url: ApiUrl = "") -> None:
    """Send to it again, what happens from now on. What it has missed can be sent by `muster webhooks replay`."""
    _set(webhook, enabled=True, api_url=api_url)


@app.command()
def disable(webhook: Webhook, *, api_url: ApiUrl = "") -> None:
    """Send nothing to it until it is enabled again."""
    _set(webhook, enabled=False, api_url=api_url)


def _set(webhook: str, *, enabled: bool, api_url: str) -> None:
    with connect(api_url) as client:
        one = client.patch(_path(webhook), {"enabled": enabled}, thing=webhook)
    print(one["endpoint_id"])
    if enabled:
        say(f"events behind position {spelled(one['after'])} are sent there")


@app.command()
def rotate(webhook: Webhook, *, grace: Grace = 86_400, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """Sign with a new secret, which is printed and never shown again. Those before it sign too for a while."""
    secret = spell_secret(secrets.token_bytes(SECRET_BYTES))
    with connect(api_url) as client:
        done = client.post(f"{_path(webhook)}:rotate", {"secret": secret, "grace_s": grace}, thing=webhook)
    print(json.dumps(done | {"secret": secret}) if as_json else secret)
    say(f"the secrets before it sign too until {done['until']}")


@app.command("test")
def try_out(webhook: Webhook, *, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """Send a test event to it, once, and wait for what comes back. Exit code 1 where that is not a 2xx."""
    with connect(api_url) as client:
        webhook_id = client.post(f"{_path(webhook)}:test", {}, thing=webhook)["webhook_id"]
        found = _tried(client, webhook, str(webhook_id))
    if found is None:
        hint = "does muster serve webhooks run?"
        raise Failure(webhook, f"nothing was sent within {ANSWER_S:.0f} s", hint=hint, code=ExitCode.TIMEOUT)
    print(json.dumps(found) if as_json else f"{found['state']} {found['last_status'] or ''}".strip())
    if found["state"] != "delivered":
        told = found["last_problem"] or f"it answered {found['last_status']}"
        raise Failure(webhook, f"the test was not delivered: {told}")


def _tried(client: Client, webhook: str, webhook_id: str) -> Json | None:
    """The delivery once an attempt was made; None where none was within `ANSWER_S`."""
    until_s = CLOCK.monotonic() + ANSWER_S
    while CLOCK.monotonic() < until_s:
        tests: list[Json] = client.get(f"{_path(webhook)}/deliveries", {"until": 0}, thing=webhook)["deliveries"]
        found = next((one for one in tests if one["webhook_id"] == webhook_id and one["last_at"]), None)
        if found is not None:
            return found
        time.sleep(LOOK_EVERY_S)
    return None


@app.command()
def deliveries(
    webhook: Webhook, *, state: State = None, limit: Limit = 50, as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """What became of the events to it, newest first. --json: one document a line."""
    with connect(api_url) as client:
        params: dict[str, Any] = {"state": state, "limit": limit}
        found = client.get(f"{_path(webhook)}/deliveries", params, thing=webhook)["deliveries"]
        if as_json:
            for one in found:
                print(json.dumps(one))
            return
        print_table(DELIVERY_COLUMNS, [_delivery(one, client) for one in found])


def _delivery(one: Json, client: Client) -> list[str]:
    return [
        spelled(one["position"]) if one["position"] else "test",
        str(one["event_type"]).removeprefix(ROOT),
        str(one["state"]),
        str(one["attempts"]),
        str(one["last_status"] or ""),
        ago(one["last_at"], client.now),
        _ahead(one["next_try"], client.now),
        str(one["last_problem"]),
        str(one["webhook_id"]),
    ]


def _ahead(then: Any, now: datetime) -> str:  # noqa: ANN401 - a value of a JSON document
    """`in 5m 00s`; empty where there is none."""
    at = parse_time(then)
    return f"in {duration(max(0.0, (at - now).total_seconds()))}" if at else ""


@app.command()
def replay(
    webhook: Webhook, after: After, *, before: Before = "", as_json: AsJson = False, api_url: ApiUrl = ""
) -> None:
    """Send it again what it wants of a range of the log, under the same ids: receivers know what they had."""
    with connect(api_url) as client:
        body, headers = {"after": after, "before": before}, as_operator()
        asked = client.post(f"{_path(webhook)}:replay", body, thing=webhook, headers=headers)
    print(json.dumps(asked) if as_json else asked["replay_id"])
    span = f"behind {spelled(asked['after'])} up to {spelled(asked['until'])}"
    say(f"what it wants {span} is sent again; muster webhooks show {webhook} tells how far")


def _path(webhook: str) -> str:
    """The address of a webhook. Raises `Failure` for what can be no id."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", webhook):
        hint = "muster webhooks list shows them"
        raise Failure(repr(webhook), "cannot be a webhook's id", hint=hint, code=ExitCode.USAGE)
    return f"/webhooks/{webhook}"
