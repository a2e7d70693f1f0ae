"""Routes that write: submit one job or many, cancel one, resume one. They need the log and nothing else."""

import asyncio
import uuid
from typing import Annotated

from fastapi import APIRouter, Header

from events.ask import Accepted, Cancel, Resume, Submit
from events.base import JobId, TeamId
from services.api.jobs import job_named
from services.api.parts import Here, InHere
from services.api.problems import Troubled, accepted, problem_of
from services.api.schemas import (
    TEAM_DEFAULT,
    CancelBody,
    Cancelled,
    ResumeBody,
    Resumed,
    SubmitBody,
    SubmitManyBody,
    Submitted,
    SubmittedMany,
    SubmittedOne,
)
from services.gate.names import KEY_MAX, is_job_id

router = APIRouter(prefix="/v1", tags=["jobs"])

AskingTeam = Annotated[str, Header(alias="Muster-Team", description="Who asks, where the body does not say so.")]
Key = Annotated[
    str, Header(alias="Idempotency-Key", max_length=KEY_MAX, description="The same key again gives the same job.")
]
Trace = Annotated[str, Header(alias="traceparent", max_length=200)]


@router.post("/jobs", status_code=201)
async def submit(
    body: SubmitBody, here: InHere, muster_team: AskingTeam = "", idempotency_key: Key = "", traceparent: Trace = ""
) -> Submitted:
    """Submit a job. It is in the log when this answers; asking again with the same key gives the same job."""
    team = team_of(body, muster_team)
    key = body.key or idempotency_key or str(uuid.uuid4())
    ask = Submit(key=key, spec=body.spec, trace=traceparent)
    answer = accepted(await here.gate.submit(team, ask, _by(team)))
    return Submitted(job_id=answer.job_id, team=team, key=key, position=answer.position, repeated=answer.repeated)


@router.post("/jobs:batch")
async def submit_many(body: SubmitManyBody, here: InHere, muster_team: AskingTeam = "") -> SubmittedMany:
    """Submit many jobs, each for itself: `jobs` of the answer says what became of each, in the same order."""
    teams = [team_of(job, body.team or muster_team) for job in body.jobs]
    asks = [Submit(key=job.key or str(uuid.uuid4()), spec=job.spec) for job in body.jobs]
    async with asyncio.TaskGroup() as group:
        told = [
            group.create_task(here.gate.submit(team, ask, _by(team))) for team, ask in zip(teams, asks, strict=True)
        ]
    jobs = []
    for team, ask, answer in zip(teams, asks, (task.result() for task in told), strict=True):
        if isinstance(answer, Accepted):
            one = SubmittedOne(
                job_id=answer.job_id, team=team, key=ask.key, position=answer.position, repeated=answer.repeated
            )
        else:
            one = SubmittedOne(job_id=answer.job_id, team=team, key=ask.key, problem=problem_of(answer))
        jobs.append(one)
    refused = sum(job.problem is not None for job in jobs)
    return SubmittedMany(jobs=jobs, accepted=len(jobs) - refused, refused=refused)


@router.post("/jobs/{job_id}:cancel")
async def cancel(
    job_id: str, here: InHere, body: CancelBody | None = None, muster_team: AskingTeam = "", traceparent: Trace = ""
) -> Cancelled:
    """Say that a job is no longer wanted. Without effect on one that has ended."""
    team, found = await _whose(here, job_id, muster_team)
    ask = Cancel(job_id=found, reason=body.reason if body else "", trace=traceparent)
    answer = accepted(await here.gate.cancel(team, ask, _by(team)))
    return Cancelled(job_id=found, team=team, position=answer.position, repeated=answer.repeated)


@router.post("/jobs/{job_id}:resume")
async def resume(
    job_id: str, here: InHere, body: ResumeBody | None = None, muster_team: AskingTeam = "", traceparent: Trace = ""
) -> Resumed:
    """Let a job try again that is held for its failures (`failed_too_often`), with its retries as they were at first."""
    team, found = await _whose(here, job_id, muster_team)
    ask = Resume(job_id=found, reason=body.reason if body else "", trace=traceparent)
    answer = accepted(await here.gate.resume(team, ask, _by(team)))
    return Resumed(job_id=found, team=team, position=answer.position, repeated=answer.repeated)


async def _whose(here: Here, job_id: str, asking: str) -> tuple[TeamId, JobId]:
    """The team and the full id of a job. The tables may not know it yet, or be away: then the gate finds out."""
    if is_job_id(job_id) and asking:
        return TeamId(asking), JobId(job_id)
    try:
        async with here.tables() as tables:
            job = await job_named(tables, job_id)
    except Troubled:
        if not is_job_id(job_id):
            raise
        return TeamId(asking or TEAM_DEFAULT), JobId(job_id)
    return TeamId(asking or job.team), job.job_id


def team_of(body: SubmitBody, otherwise: str) -> TeamId:
    """Who asks: as the body says, or the header, or the spec."""
    in_spec = body.spec.get("team")
    return TeamId(body.team or otherwise or (in_spec if isinstance(in_spec, str) else "") or TEAM_DEFAULT)


def _by(team: TeamId) -> str:
    return f"api:{team}"
