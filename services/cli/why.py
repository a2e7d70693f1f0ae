"""`muster why`, and what `--dry-run` shows: why a job waits, as of now or then, and what would become of one."""

import json
import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import typer

from services.cli.ended import TERMINAL
from services.cli.options import ApiUrl, AsJson, JobIdArgument, connect, job_path
from services.cli.place import shown
from services.cli.table import credits_of, duration, parse_time, print_wrapped
from services.main.local import CLOCK

LABEL: Final = 11  # columns of what stands before a line
NODES_TOLD_MAX: Final = 8
TIME_OF_DAY: Final = re.compile(r"(\d{2}):(\d{2})(?::(\d{2}))?")

At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME|POSITION",
        help="As it was then: 14:30, 2026-01-31T14:30, '10m ago', or a position such as 1:27.",
    ),
]


def why(job_id: JobIdArgument, *, at: At = None, as_json: AsJson = False, api_url: ApiUrl = "") -> None:
    """Why a job waits, with the numbers, or what became of it; also as it was. --json: one document."""
    with connect(api_url) as client:
        params = {"at": local_moment(at, CLOCK.now()) if at is not None else None}
        answer = client.get(job_path(job_id, "why"), params, thing=job_id)
        now = client.now
    if as_json:
        print(json.dumps(answer))
        return
    print_why(answer, now)


def local_moment(typed: str, now: datetime) -> str:
    """The moment as the API takes it: times without a zone are those of this machine's."""
    text, here = typed.strip(), now.astimezone()
    if found := TIME_OF_DAY.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in found.groups())
        try:
            time = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
        except ValueError:
            return text  # the API says what is wrong with it
        return (time if time <= here else time - timedelta(days=1)).isoformat()
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.astimezone().isoformat()


def print_why(answer: dict[str, Any], now: datetime | None = None) -> None:
    """The answer is on stdout: what it is, a sentence, then a line for each thing that helps."""
    ended = answer["state"] in TERMINAL
    state, code = _plain(answer["state"]), _plain(answer.get("code"))
    head = f"{answer['job_id']}{':' if ended else ' is'} {state}" + (f": {code}" if code else "")
    past = answer.get("source") == "log"
    at = parse_time(answer.get("at")) or now
    if past and at is not None:
        head = f"{head} (at {_time(at, at)}, position {shown(answer['position'])})".replace(" is ", " was ", 1)
    print(head)
    if answer.get("message"):
        print_wrapped(str(answer["message"]), "  ")
    for label, text in _lines(answer, at):
        print_wrapped(text, f"  {label:<{LABEL}}")


def _lines(answer: dict[str, Any], at: datetime | None) -> list[tuple[str, str]]:
    """What stands before each line, and the line; those with nothing to say left out."""
    lines = [
        ("start", start_of(answer, at)),
        ("order", _order(answer)),
        ("team", _share(answer)),
        ("credits", credits_line(answer, will="would be" if answer["state"] == "queued" else "are")),
        ("stopping", ", ".join(answer.get("preempting") or ())),
        ("held by", ", ".join(answer.get("blockers") or ())),
        ("nodes", _some(answer.get("reserved") or ())),
        ("to do", str(answer.get("next_action") or "")),
        ("note", str(answer.get("note") or "")),
    ]
    return [(label, text) for label, text in lines if text]


def start_of(answer: dict[str, Any], at: datetime | None) -> str:
    """When it may start, and what that rests on."""
    if not answer.get("basis"):
        return ""
    start, told = parse_time(answer.get("estimated_start")), str(answer.get("estimate") or "")
    if start is None:
        return f"unknown: {told}"
    away = (start - at).total_seconds() if at is not None else 0.0
    if away < 1:
        return f"now: {told}"
    return f"in {duration(away)}, at {_time(start, at or start)}: {told}"


def _order(answer: dict[str, Any]) -> str:
    ahead, behind = int(answer.get("ahead") or 0), str(answer.get("behind") or "")
    if not ahead:
        return f"behind {behind}" if behind else ""
    first = f"; {behind} is first" if behind and ahead > 1 else f": {behind}" if behind else ""
    return f"{ahead} job{'s' if ahead > 1 else ''} before it{first}"


def _share(answer: dict[str, Any]) -> str:
    if answer.get("entitled") is None or not answer.get("gpu_type"):
        return ""
    used, entitled, gpu_type = int(answer.get("used") or 0), int(answer["entitled"]), answer["gpu_type"]
    return f"{answer.get('team')} has {_gpus(used, gpu_type)}, and may claim {entitled} now"


def credits_line(answer: dict[str, Any], *, will: str) -> str:
    """What is reserved, or would be, on which account, and how that is worked out; nothing where nobody charges it."""
    if answer.get("reserves_micro") is None:
        return ""
    short = int(answer.get("short_micro") or 0)
    missing = f"; short {credits_of(short)}" if short else ""
    charge = f": {answer['charge']}" if answer.get("charge") else ""
    reserved = credits_of(int(answer["reserves_micro"]))
    return f"{reserved} of account {answer.get('account')} {will} reserved{missing}{charge}"


# A dry run


def print_dry_run(answer: dict[str, Any], now: datetime) -> None:
    """What would become of the job is on stdout."""
    print(_outcome(answer))
    if answer.get("message") and answer["outcome"] != "starts":
        print_wrapped(str(answer["message"]), "  ")
    explained = answer.get("why") or {}
    nodes = [f"{node} ({gpus})" for node, gpus in (answer.get("nodes") or {}).items()]
    lines = [
        ("start", start_of(explained, now)),
        ("where", f"{_gpus(answer['gpus'], answer['gpu_type'])} on {_some(nodes)}" if nodes else ""),
        ("order", _order(explained)),
        ("stops", ", ".join(answer.get("preempts") or ())),
        ("team", _would_have(answer)),
        ("credits", credits_line(answer, will="would be")),
        ("team", _share({**explained, "team": answer["team"]}) if explained and not _gets_gpus(answer) else ""),
        ("held by", ", ".join(explained.get("blockers") or ())),
        ("to do", str(explained.get("next_action") or "")),
    ]
    for label, text in lines:
        if text:
            print_wrapped(text, f"  {label:<{LABEL}}")


def _outcome(answer: dict[str, Any]) -> str:
    stopped = len(answer.get("preempts") or ())
    jobs = f"{stopped} job{'' if stopped == 1 else 's'}"
    told = {
        "starts": "would start at once",
        "preempts": f"would start once {jobs} stopped for it {'has' if stopped == 1 else 'have'} ended",
        "moves": f"would start once {jobs} moved for it {'has' if stopped == 1 else 'have'} gone",
        "promised": "would wait, and be promised a start",
        "waits": "would wait",
        "rejected": "would be rejected",
        "not_evaluated": "cannot be said",
    }
    code = _plain(answer.get("code"))
    return told.get(str(answer["outcome"]), str(answer["outcome"])) + (f": {code}" if code else "")


def _gets_gpus(answer: dict[str, Any]) -> bool:
    """Whether it is only a matter of time: what its team would have then means something."""
    tier = (answer.get("why") or {}).get("tier") or "room"
    return answer["outcome"] not in {"rejected", "not_evaluated"} and tier == "room"


def _would_have(answer: dict[str, Any]) -> str:
    if not _gets_gpus(answer) or not answer.get("gpu_type"):
        return ""
    borrowed = int(answer["borrowed"])
    has = _gpus(answer["used"], answer["gpu_type"])
    told = f"{answer['team']} would have {has}, and may claim {answer['entitled']}"
    return f"{told}: {f'{borrowed} of them borrowed' if borrowed else 'none of them borrowed'}"


# Words


def _plain(code: object) -> str:
    return str(code or "").replace("_", " ")


def _gpus(number: int, gpu_type: str) -> str:
    return f"{number} {gpu_type} GPU{'' if number == 1 else 's'}"


def _some(names: "list[str] | tuple[str, ...]") -> str:
    more = f" and {len(names) - NODES_TOLD_MAX} more" if len(names) > NODES_TOLD_MAX else ""
    return ", ".join(names[:NODES_TOLD_MAX]) + more


def _time(moment: datetime, now: datetime) -> str:
    """As the clock on the wall here shows it, with the date where it is another one."""
    here = moment.astimezone()
    return f"{here:%H:%M:%S}" if here.date() == now.astimezone().date() else f"{here:%Y-%m-%d %H:%M:%S}"
