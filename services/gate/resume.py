"""What somebody is told who resumes a job, by what it was last asked and what last became of it."""

from events.ask import Accepted, RefusalCode, Refused, Resume
from events.base import Event, Recorded
from events.job import EarmarkDropped, JobCancelRequested, JobRequeued, JobResumeAsked, PromiseDropped


def answer_to(ask: Resume, asked: Recorded, said: Recorded | None) -> Accepted | Refused | None:
    """The answer, where nothing is to be written: it was resumed already, or there is nothing to resume. None: resume it.

    `asked`: the last record of its users; `said`: that of the control plane, if it has said anything of it.
    """
    held = said is not None and _may_be_held(said.event)
    if isinstance(asked.event, JobResumeAsked) and not (held and said is not None and said.position > asked.position):
        return Accepted(position=asked.position, job_id=ask.job_id, repeated=True)
    if isinstance(asked.event, JobCancelRequested):
        return _refused(ask, "was cancelled", "a cancelled job does not run again: submit it anew, under another key")
    if not held:
        return _refused(ask, "is not held for its failures", f"muster job {ask.job_id} shows where it stands")
    return None


def _may_be_held(event: Event) -> bool:
    """What had been set aside for a job may be dropped after it was held, in the same round."""
    return (isinstance(event, JobRequeued) and event.held) or isinstance(event, EarmarkDropped | PromiseDropped)


def _refused(ask: Resume, why: str, hint: str) -> Refused:
    return Refused(code=RefusalCode.CONFLICT, message=f"job_id: {ask.job_id} {why}: nothing to resume", hint=hint)
