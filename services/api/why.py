"""Routes that explain: why a job waits, now or at a moment of the past, and what would become of one that is submitted."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response

from events.ask import DryRun, DryRunAsk, Refused, Why, WhyAsk
from events.base import JobId, Position, TeamId, spelled
from projections.cluster.explain.why import explain
from projections.cluster.state import Cluster
from projections.tables import job_view
from projections.tables.job_view import JobState
from runtime.serve_requests import ask
from services.api.jobs import ENDED, job_named
from services.api.moment import RULE, moment_of
from services.api.parts import AtLeast, Here, InHere, say_position
from services.api.problems import Troubled, problem_of, trouble
from services.api.schemas import SubmitBody
from services.api.submit import AskingTeam, team_of
from services.api.why_schemas import DryRunAnswer, WhyAnswer
from services.gate.gate import team_problem
from services.gate.names import is_job_id, shown
from services.gate.spec import checked

router = APIRouter(prefix="/v1", tags=["jobs"])

WHY_S: Final = 2.0
DRY_RUN_S: Final = 5.0
WHY_DECODER: Final = msgspec.json.Decoder(Why)
DRY_RUN_DECODER: Final = msgspec.json.Decoder(DryRun)

At = Annotated[str | None, Query(description=f"As it was then, from the event log: {RULE}.")]


@router.get("/jobs/{job_id}/why")
async def why(job_id: str, here: InHere, response: Response, min_position: AtLeast, at: At = None) -> WhyAnswer:
    """Why a job waits, with the numbers, or what became of it: as the control plane sees it, else as the tables do.

    With `at` as it was then: the log is folded up to that moment, one question at a time.
    """
    found: tuple[job_view.Job, Position] | Troubled
    try:
        async with here.tables(min_position) as tables:
            found = await job_named(tables, job_id), tables.position
    except Troubled as troubled:
        if not is_job_id(job_id) or troubled.problem.status == HTTPStatus.GATEWAY_TIMEOUT:
            raise
        found = troubled  # the control plane may know it all the same
    if at is not None:
        answer = await _at(here, at, job_id, None if isinstance(found, Troubled) else found[0])
    else:
        answer = await _now(here, job_id, found)
    say_position(response, answer.position)
    return answer


@router.post("/jobs:dry-run")
async def dry_run(body: SubmitBody, here: InHere, response: Response, muster_team: AskingTeam = "") -> DryRunAnswer:
    """What would become of the job, were it submitted now: the scheduler's own answer. Nothing is written."""
    team = team_of(body, muster_team)
    spec = team_problem(team) or checked(body.spec, team)
    if isinstance(spec, Refused):
        raise Troubled(problem_of(spec))
    asked = msgspec.json.encode(DryRunAsk(team=team, spec=spec))
    reply = await ask(here.connection, here.subjects.dry_run, asked, within_s=DRY_RUN_S)
    if not reply:
        code, told = (
            ("busy", "too many dry runs wait") if reply is not None else ("control_away", "no control plane answered")
        )
        raise trouble(
            HTTPStatus.SERVICE_UNAVAILABLE, code, told, "try again in a moment; jobs can be submitted meanwhile"
        )
    would = DRY_RUN_DECODER.decode(reply)
    if not would.outcome:
        raise trouble(HTTPStatus.SERVICE_UNAVAILABLE, "control_differs", "the control plane is of another version")
    say_position(response, would.position)
    return _would(team, would)


async def _now(here: Here, job_id: str, found: tuple[job_view.Job, Position] | Troubled) -> WhyAnswer:
    said = await _control_says(here, JobId(job_id) if isinstance(found, Troubled) else found[0].job_id)
    if said is not None and said.found:
        return _told(said, source="leader" if said.leader else "standby")
    if isinstance(found, Troubled):
        raise found
    return _shown(*found, answered=said is not None)


async def _at(here: Here, typed: str, job_id: str, row: job_view.Job | None) -> WhyAnswer:
    moment = moment_of(typed, here.clock.now())
    asked = row.job_id if row is not None else JobId(job_id)

    def explained(cluster: Cluster) -> Why:
        why = explain(cluster, asked, at=moment.time or cluster.at or here.clock.now())
        return msgspec.structs.replace(why, halted=cluster.unread)

    said = await here.past.look(moment, explained)
    if said.found:
        record = spelled(said.halted)
        note = f"deciding had stopped at record {record}, which contradicts those before it" if said.halted else ""
        return _told(said, source="log").model_copy(update={"note": note})
    if row is None or row.submitted > said.position:
        since = f": it was submitted at {row.submitted_at:%Y-%m-%dT%H:%M:%SZ}" if row is not None else ""
        raise trouble(HTTPStatus.NOT_FOUND, "not_found", f"job_id: there was no job {shown(job_id)} at {typed}{since}")
    # The fold forgets what has ended, and nothing becomes of it any more: the tables have its last word.
    return _shown(row, said.position, answered=True).model_copy(update={"source": "log", "at": said.at})


async def _control_says(here: Here, job_id: JobId) -> Why | None:
    """What a control plane answers; None when none does."""
    asked = msgspec.json.encode(WhyAsk(job_id=job_id))
    reply = await ask(here.connection, here.subjects.why, asked, within_s=WHY_S)
    return None if reply is None else WHY_DECODER.decode(reply)


def _told(said: Why, *, source: str) -> WhyAnswer:
    told: dict[str, Any] = {name: getattr(said, name) for name in WhyAnswer.model_fields if hasattr(said, name)}
    told |= {name: list(told[name]) for name in ("blockers", "preempting", "reserved")}
    return WhyAnswer(**told, source=source, note="")


def _would(team: TeamId, would: DryRun) -> DryRunAnswer:
    source = "leader" if would.leader else "standby"
    told: dict[str, Any] = {name: getattr(would, name) for name in DryRunAnswer.model_fields if hasattr(would, name)}
    waits = _told(would.why, source=source).model_copy(update={"job_id": ""}) if would.why is not None else None
    start: datetime | None = waits.estimated_start if waits is not None else None
    told |= {"preempts": list(would.preempts), "why": waits}
    return DryRunAnswer(**told, team=team, estimated_start=start, source=source)


def _shown(row: job_view.Job, position: Position, *, answered: bool) -> WhyAnswer:
    """What the tables know, with a note of how old that is, unless the job has ended and nothing can be newer."""
    note = ""
    if row.state not in ENDED:
        who = "the control plane does not know the job yet" if answered else "no control plane answered"
        note = f"{who}: this is what the tables showed at position {spelled(position)}; numbers are missing"
    said = Why(
        job_id=row.job_id,
        found=True,
        position=position,
        team=row.team,
        state=row.state,
        code=row.hold_code or "",
        message=row.message or _sentence(row),
        need={"gpus": row.gpus},
    )
    return _told(said, source="tables").model_copy(update={"note": note})


def _sentence(row: job_view.Job) -> str:
    """What became of a job, in a sentence."""
    if row.ended_at is not None:
        cause = f": {_cause(row)}" if _cause(row) else ""
        code = f", exit code {row.exit_code}" if row.exit_code else ""
        node = f", on {row.failed_node}" if row.failed_node else ""
        was = "was " if row.state in {JobState.CANCELLED, JobState.REJECTED} else ""
        return f"It {was}{row.state.replace('_', ' ')} at {row.ended_at:%Y-%m-%d %H:%M:%S} UTC{cause}{code}{node}."
    return f"It waits: {row.hold_code.replace('_', ' ')}." if row.hold_code else f"It is {row.state}."


def _cause(row: job_view.Job) -> str:
    """Why it did not succeed; of a cancelled job what its user said, if anything."""
    if row.state == JobState.CANCELLED:
        return row.cancel_reason or ""
    return row.cause.replace("_", " ") if row.cause and row.state != JobState.SUCCEEDED else ""
