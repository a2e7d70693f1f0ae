"""Which waiting jobs may run: those that their queues, limits and entitlements let in, and some more that borrow.

A job that may not, and is like none that may, is told why; so is one that may no longer.
"""

from typing import Final

from events.base import Event, JobId, TeamId
from events.credit import CreditReserved
from events.job import IMPOSSIBLE, UNPAID, HoldCode, JobAdmitted, JobRejected, JobSpec
from projections.cluster.holds import holds
from projections.cluster.index import line_of
from projections.cluster.job import WANT_NOTHING, Job, JobState, Shape
from projections.cluster.quota.bounds import request_of
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster, Line
from projections.cluster.tick import Tick
from services.admission.lineup import Lineup
from services.admission.pending import REJECTED_MAX, rejected
from services.admission.possible import Possible, least_gpus
from services.admission.spend import spend
from services.admission.till import Till
from services.admission.unpaid import Unpaid
from services.admission.withdraw import repriced, withdrawn

ADMITTED_MAX: Final = 1_000  # in one round, so that it stays below 100 ms; the rest is the next round's
UNPAID_MAX: Final = 1_000  # jobs found to be unpaid in one round, likewise
# Said of no job that cannot be paid for; the latter where floors follow what is wanted:
BEHIND_OTHERS: Final = frozenset({HoldCode.OVER_ENTITLEMENT, HoldCode.BEHIND})
BY_FLOORS: Final = frozenset({HoldCode.OVER_FLOOR, HoldCode.OVER_LIMIT})


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """Admission's part of a round, in the order of the policy; of jobs that are alike the first stands for all.

    A job that may not run holds up none behind it that needs something else, but in a strict queue, where it holds up
    all that want the same GPU type. One that cannot be paid for stands for nobody: those like it may cost less.
    """
    till = Till(cluster, tick)
    spent = spend(cluster, tick, till)
    possible, unpaid = Possible(cluster), Unpaid(cluster, till)
    standing = _standing(cluster, tick, possible, unpaid)
    withdrawals, reasons = withdrawn(cluster, tick, standing, possible)
    withdrawals += repriced(cluster, tick, till, besides=reasons)
    desk = Desk(cluster, tick, standing, possible, till)
    desk.admit_earmarked()
    desk.pass_over(unpaid)
    lines = Lineup(cluster, tick.at, unpaid)
    while lines and len(desk.decided) < ADMITTED_MAX:
        line, job = lines.first()
        if desk.look_at(line, job):
            lines.advance()
        else:
            lines.drop()
    rejections = [] if lines else rejected(cluster, tick, desk.decided)
    codes, unpaid_jobs = desk.reasons(), desk.unpaid
    if lines or len(rejections) == REJECTED_MAX:  # a new job that was told of would no longer be turned away
        codes = {line: code for line, code in codes.items() if line.hold is not HoldCode.NOT_EVALUATED}
        unpaid_jobs = {job_id: code for job_id, code in unpaid_jobs.items() if not _is_new(cluster.jobs[job_id])}
    moved_on = dict.fromkeys([*desk.decided, *(event.job_id for event in rejections)])
    jobs = {**unpaid.codes, **desk.last_said(reasons), **unpaid_jobs, **desk.due, **moved_on}
    return [*withdrawals, *spent, *desk.events, *rejections, *holds(cluster, tick, cluster.queue, codes, jobs=jobs)]


def _is_new(job: Job) -> bool:
    return job.hold is HoldCode.NOT_EVALUATED and job.not_before is None


class Desk:
    """Looks at one job after the other, and remembers what was said of those like it."""

    def __init__(self, cluster: Cluster, tick: Tick, standing: Standing, possible: Possible, till: Till) -> None:
        self.events: list[Event] = []
        self.decided: set[JobId] = set()  # jobs that are queued no more
        self.codes: dict[Line, HoldCode] = {}  # why the jobs of a line wait
        self.due: dict[
            JobId, HoldCode
        ] = {}  # why those wait that stand for themselves, such as when their back-off is over
        self.unpaid: dict[JobId, HoldCode] = {}  # likewise, those that cannot be paid for
        self._cluster = cluster
        self._tick = tick
        self._standing = standing
        self._possible = possible
        self._till = till
        self._unpaid_left = UNPAID_MAX
        self._clear: dict[Line, int] = {}  # what nothing stood against but what it costs, when so many were let in
        self._refused: dict[Line, HoldCode] = {}
        self._closed: set[tuple[TeamId, str]] = set()  # strict queues, and the GPU type that one in them waits for
        self._ahead: dict[tuple[TeamId, Shape], int] = {}  # jobs that are admitted beyond the entitlement, and wait
        for line in cluster.admitted.groups():
            if line.borrowing:
                key = line.team, line.shape
                self._ahead[key] = self._ahead.get(key, 0) + cluster.admitted.count(line)

    def admit_earmarked(self) -> None:
        """Jobs that were moved, or keep their place, are admitted at once, if they can be paid for: it counts as theirs."""
        for job_id in sorted(self._cluster.earmarks):
            job = self._cluster.jobs[job_id]
            held = job.hold is HoldCode.FAILED_TOO_OFTEN or self._cluster.tree.stopped(job.team)
            due = job.not_before is None or job.not_before <= self._tick.at
            waits = job.state is JobState.QUEUED and due and not job.cancel and not held
            if waits and not self._till.unsettled(job) and (code := self._admit(job, borrowing=False)) is not None:
                self.unpaid[job_id] = code

    def pass_over(self, unpaid: Unpaid) -> None:
        """Lines in which nothing can be paid for are not tried; what is graver is said of them."""
        for line in self._cluster.queue.groups():
            if line.hold in UNPAID and next(unpaid.in_turn(line), None) is None:
                alike = _alike(line)
                code = self._refused.get(alike) or self._bound(alike)
                if code is not None and not self._by_wishes(code):
                    self.codes[line] = self._refused[alike] = code

    def look_at(self, line: Line, job: Job) -> bool:
        """Whether the jobs behind it in its line may do better: it was admitted or rejected, or is no longer wanted."""
        if job.cancel or job.job_id in self.decided or self._till.unsettled(job):
            return True  # lifecycle ends it; or it was earmarked; or the ledger comes first
        if (fault := spec_fault(job.spec)) is not None:
            self._say(job, JobRejected(**self._tick.of_job(job), code="invalid_spec", message=fault))
            return True
        alike = _alike(line)
        code = self._refused.get(alike) or self._try(alike, job)
        if code is None:
            return True
        if code in UNPAID:
            self.unpaid[job.job_id] = code
            self._unpaid_left -= 1
            return self._unpaid_left > 0
        self._refused[alike] = code
        by_itself = line.hold in UNPAID and self._by_wishes(code)
        if by_itself and not self._till.pays(job):
            return False  # in a strict queue all are tried; what it waits for stays what it is
        if job.not_before is not None or by_itself:
            self.due[job.job_id] = code
            return True
        self.codes[line] = code
        return False

    def _by_wishes(self, code: HoldCode) -> bool:
        """Whether it depends on what is wanted: who waits for this wants GPUs, and where nobody can pay, it may be wrong then."""
        return code in BEHIND_OTHERS or (self._cluster.tree.laid and code in BY_FLOORS)

    def reasons(self) -> dict[Line, HoldCode]:
        """Why the jobs of each line that was refused wait, now that all that could be let in is.

        What was let in after them may stand against them by now; the next round would find that, and say it then.
        """
        if self._standing.sole or not self.events:
            return self.codes
        for alike, before in self._refused.items():
            after = self._against(alike) or before
            behind = before is HoldCode.BEHIND and after is HoldCode.OVER_ENTITLEMENT
            self._refused[alike] = before if behind else after
        self.due = {job_id: self._refused[_alike(line_of(self._cluster.jobs[job_id]))] for job_id in self.due}
        return {line: self._refused[_alike(line)] for line in self.codes}

    def last_said(self, reasons: dict[JobId, HoldCode]) -> dict[JobId, HoldCode]:
        """The reasons of jobs that were let out, likewise: with all counted that stays in."""
        last: dict[JobId, HoldCode] = {}
        codes: dict[Line, HoldCode | None] = {}
        for job_id, before in reasons.items():
            alike = _alike(line_of(self._cluster.jobs[job_id]))._replace(borrowing=False)
            if alike not in codes:
                codes[alike] = self._against(alike)
            last[job_id] = codes[alike] or before
        return last

    def _try(self, alike: Line, job: Job) -> HoldCode | None:
        """Admits the job, or says what stands against it and all that are like it."""
        standing, shape, team = self._standing, alike.shape, alike.team
        if standing.sole:
            return self._possible.fault(shape) or self._admit(job, borrowing=False)
        gpus = least_gpus(shape)
        wanted = standing.wants(shape.gpu_types)
        clear = self._clear and self._clear.get(alike) == len(self.events)
        code = None if clear else self._against(alike)
        if (team, wanted) in self._closed and code in (None, HoldCode.OVER_ENTITLEMENT):
            code = HoldCode.BEHIND
        if code is not None:
            if standing.strict(team) and code not in IMPOSSIBLE and not standing.stuck(request_of(alike)):
                self._closed.add((team, wanted))
            return code
        borrowing = not standing.entitles(team, wanted, gpus, rank=alike.rank)
        if (code := self._admit(job, borrowing=borrowing)) is not None:
            self._clear[alike] = len(self.events)
            if code is HoldCode.CREDITS and standing.strict(team):
                self._closed.add((team, wanted))
            return code
        standing.claim(alike, 1)
        if borrowing:
            self._ahead[team, shape] = self._ahead.get((team, shape), 0) + 1
        return None

    def _against(self, alike: Line) -> HoldCode | None:
        """The gravest of what stands against jobs like this one, whoever is before them in their queue, and whoever pays."""
        standing, shape, team = self._standing, alike.shape, alike.team
        if (code := self._bound(alike)) is not None:
            return code
        if standing.entitles(team, standing.wants(shape.gpu_types), least_gpus(shape), rank=alike.rank):
            return None
        ahead = self._ahead.get((team, shape), 0)
        return HoldCode.OVER_ENTITLEMENT if ahead >= self._cluster.policy.admitted_ahead else None

    def _bound(self, alike: Line) -> HoldCode | None:
        """What stands against them whatever their team is entitled to: a stop, the nodes, a limit."""
        block = self._standing.blocked(request_of(alike))
        if block is not None and block.code is HoldCode.QUEUE_PAUSED:
            return block.code
        if (code := self._possible.fault(alike.shape)) is not None:
            return code
        return block.code if block is not None else None

    def _admit(self, job: Job, *, borrowing: bool) -> HoldCode | None:
        """What it costs is reserved and it is admitted, both or neither; a code where nobody can pay."""
        reserved = self._till.reserve(job)
        if isinstance(reserved, HoldCode):
            return reserved
        self._say(job, JobAdmitted(**self._tick.of_job(job), borrowing=borrowing), reserved)
        return None

    def _say(self, job: Job, event: Event, reserved: CreditReserved | None = None) -> None:
        self.events.append(event)
        if reserved is not None:
            self.events.append(reserved)
        self.decided.add(job.job_id)


def _standing(cluster: Cluster, tick: Tick, possible: Possible, unpaid: Unpaid) -> Standing:
    """Where the teams stand, once what the log says of impossible jobs is brought up to date.

    A job that was never looked at counts as wanting GPUs, one that was found to be impossible or unpaid does not, and both
    may be wrong by now. Without this a round would decide by wishes that it corrects itself, and the next one otherwise.
    """
    standing = Standing(cluster, tick.at)
    without = _corrections(cluster, standing, possible, unpaid)
    return Standing(cluster, tick.at, without=without) if without else standing


def _corrections(
    cluster: Cluster, standing: Standing, possible: Possible, unpaid: Unpaid
) -> dict[tuple[TeamId, str], int]:
    """GPUs that the fold counts as wanted and nobody wants; negative where it is the other way round.

    None of this depends on what is wanted, so that what is corrected needs no more correction.
    """
    without: dict[tuple[TeamId, str], int] = {}
    if standing.sole:
        return without
    for lines in (cluster.queue, cluster.admitted):
        for line in lines.groups():
            needs = line.team, line.shape.gpu_types, least_gpus(line.shape)
            never = possible.fault(line.shape) is not None or standing.never(*needs, preemptible=not line.firm)
            if never and line.hold not in WANT_NOTHING:
                more = -lines.count(line)
            elif not never and line.hold in WANT_NOTHING:
                more = unpaid.wanting(line) if line.hold in UNPAID else lines.count(line)
            else:
                continue
            if more:
                key = line.team, standing.wants(line.shape.gpu_types)
                without[key] = without.get(key, 0) - more * line.shape.gpus
    return without


def _alike(line: Line) -> Line:
    """What lines have in common of which the log says different things: they are judged alike."""
    return line._replace(hold=HoldCode.NOT_EVALUATED)


def spec_fault(spec: JobSpec) -> str | None:
    """What makes a job impossible to run anywhere; None for nothing. The gate refuses these; a log may hold older ones."""
    if not spec.command:
        return "it has no command"
    if spec.gpus < 1:
        return f"it asks for {spec.gpus} GPUs; the least is 1"
    if bool(spec.nodes) != bool(spec.gpus_per_node) or min(spec.nodes, spec.gpus_per_node) < 0:
        return f"nodes ({spec.nodes}) and gpus_per_node ({spec.gpus_per_node}) go together"
    if spec.nodes and spec.nodes * spec.gpus_per_node != spec.gpus:
        return f"{spec.nodes} nodes x {spec.gpus_per_node} GPUs are not {spec.gpus} GPUs"
    return None
