"""What is said of each reason: one sentence with the numbers, and what the user can do."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from events.base import TeamId
from events.job import HoldCode, NodeShare
from events.queues import QueueStop
from projections.cluster.explain.charge import credits_short, no_account, no_price
from projections.cluster.explain.reason import Reason
from projections.cluster.explain.supply import accepts
from projections.cluster.job import Job
from projections.cluster.placing.misfit import kept_away
from projections.cluster.placing.place import Placement, Room, place
from projections.cluster.placing.windows import Windows
from projections.cluster.quota.bounds import Block
from projections.cluster.quota.entitlement import Standing
from projections.cluster.state import Cluster

NAMED_MAX: Final = 5  # jobs, nodes or types in one sentence
WAIT: Final = "wait"
LESS: Final = "ask for fewer GPUs"
SICK: Final = "see what returns those that are out (muster nodes)"
BORROWING: Final = "borrowing_limit"
KEEPS_AWAY: Final = frozenset({HoldCode.NO_ROOM, HoldCode.SCATTERED, HoldCode.PROMISED})


class Case(NamedTuple):
    """A waiting job, its reason, and the numbers of the moment."""

    cluster: Cluster
    job: Job
    reason: Reason
    standing: Standing
    have: Mapping[str, int]
    gpu_type: str  # for which the job counts
    at: datetime

    @property
    def block(self) -> Block:
        """Whose bound it is; for a code that names one."""
        assert self.reason.block is not None
        return self.reason.block


def said(case: Case) -> tuple[str, str]:
    """The sentence, and what to do."""
    message, action = SENTENCES[case.reason.code](case)
    away = _failed_it(case) if case.reason.code in KEEPS_AWAY else ()
    return f"{message}; it keeps away from {some(away)}, which failed it" if away else message, action


def _failed_it(case: Case) -> tuple[str, ...]:
    """The nodes that the job keeps away from, if it would fit with them."""
    away = kept_away(case.cluster, case.job.shape)
    fits = bool(away) and isinstance(place(Room(case.cluster), case.job.shape._replace(avoid=())), Placement)
    return away if fits else ()


def some(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def count(number: int, thing: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def time_of(moment: datetime, at: datetime) -> str:
    """A moment as sentences name it: with its date where that is another one than now."""
    return f"{moment:%H:%M:%S} UTC" if moment.date() == at.date() else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _not_evaluated(case: Case) -> tuple[str, str]:
    return f"{case.job.shape} would fit: the next round places it, or a job before it", WAIT


# Held


def _queue_paused(case: Case) -> tuple[str, str]:
    queue = case.reason.block.queue if case.reason.block is not None else case.job.team
    stop = case.cluster.queues[TeamId(queue)].stop if TeamId(queue) in case.cluster.queues else QueueStop.PAUSE
    how = "on hold: nothing in it runs" if stop is QueueStop.HOLD else "paused: nothing new in it starts"
    return f"queue {queue} is {how} until an operator resumes it", f"ask an operator to resume queue {queue}"


def _backing_off(case: Case) -> tuple[str, str]:
    assert case.job.not_before is not None
    seconds = (case.job.not_before - case.at).total_seconds()
    return f"attempt {case.job.attempt} failed; the next is not before {seconds:.0f} s from now", WAIT


def _failed_too_often(case: Case) -> tuple[str, str]:
    job = case.job
    often = "once" if job.failures_infrastructure == 1 else f"{job.failures_infrastructure} times"
    message = (
        f"it was ended {often} by failures that are not its own, of which {job.spec.retries_infrastructure} are retried"
    )
    return message, f"see what ended it (muster job {job.job_id}), then muster resume {job.job_id}"


# Impossible


def _no_such_gpu(case: Case) -> tuple[str, str]:
    types = " or ".join(case.job.shape.gpu_types)
    known = ", ".join(sorted({kind.gpu_type for kind in case.cluster.sizes if kind.size})) or "none"
    return f"no node has a GPU of type {types}; known types: {known}", "ask for another type, or add nodes"


def _no_such_node(case: Case) -> tuple[str, str]:
    shape = case.job.shape
    kinds = [kind for kind in case.cluster.sizes if kind.size and accepts(shape, kind.gpu_type)]
    labels = ", ".join(f"{name}={value}" for name, value in shape.labels)
    taints = sorted({word for kind in kinds for word in kind.traits.split("|")[1:]} - set(shape.tolerates))
    lacks = f"has the labels {labels}" if labels else "takes it"
    tainted = f"; taints that it does not tolerate: {some(taints)}" if taints else ""
    number = count(case.have["nodes_unfit"], "node")
    return (
        f"needs {shape}; none of {number} with such GPUs {lacks}{tainted}",
        "change labels or tolerates, or add nodes",
    )


def _exceeds_cluster(case: Case) -> tuple[str, str]:
    total, nodes = case.have["gpus_total"], case.have["nodes"]
    message = f"needs {case.job.shape}; all nodes together have {total}, free or not ({count(nodes, 'node')})"
    if not (sick := _sick(case)):
        return message, f"{LESS}, or add nodes"
    helps = total + sick >= case.job.shape.gpus
    return (
        f"{message}, and {sick} more that health has taken out",
        f"{SICK}, or {LESS}" if helps else f"{LESS}, or add nodes",
    )


def _sick(case: Case) -> int:
    """GPUs that would do, if health had not taken them out."""
    nodes = (node for node in case.cluster.nodes.values() if node.sick and not node.fitness.retired)
    return sum((node.present & node.sick).bit_count() for node in nodes if accepts(case.job.shape, node.gpu_type))


def _exceeds_domain(case: Case) -> tuple[str, str]:
    shape, most = case.job.shape, case.have.get("gpus_domain_most", 0)
    message = f"needs {shape}; the largest {shape.within} has {most}, free or not"
    return message, f"{LESS}, or set topology to another domain or to required: false"


def _exceeds_limit(case: Case) -> tuple[str, str]:
    block = case.block
    message = f"needs {case.job.shape}; queue {block.queue} may have {block.bound} at the most"
    return message, f"{LESS}, or ask an operator to raise the {_knob(case)} of queue {block.queue}"


def _exceeds_floor(case: Case) -> tuple[str, str]:
    block = case.block
    message = f"needs {case.job.shape} and cannot be preempted; queue {block.queue} has {block.bound} for sure"
    return message, f"{LESS}, or let it be preempted"


# Over quota


def _over_limit(case: Case) -> tuple[str, str]:
    block, knob = case.block, _knob(case)
    of = f"floor and {knob}" if knob == BORROWING else knob
    message = f"needs {case.job.shape}; queue {block.queue} uses {block.used} of the {block.bound} GPUs of its {of}"
    return message, f"wait for jobs of queue {block.queue} to end, or ask an operator to raise its {knob}"


def _knob(case: Case) -> str:
    """What an operator would raise for the job: the name in the document."""
    bounds = case.cluster.tree.bounds.get(case.block.queue, {}).values()
    return "limit" if any(one.limit == case.block.bound for one in bounds) else BORROWING


def _over_floor(case: Case) -> tuple[str, str]:
    block = case.block
    message = (
        f"needs {case.job.shape} and cannot be preempted; others of that kind use {block.used} of the {block.bound} GPUs"
        f" that queue {block.queue} has for sure"
    )
    return message, "wait for them to end, or let it be preempted"


def _over_entitlement(case: Case) -> tuple[str, str]:
    team, gpu_type = case.job.team, case.gpu_type
    used, entitled = case.standing.used(team, gpu_type), case.standing.entitled(team, gpu_type)
    ahead = case.cluster.policy.admitted_ahead
    message = (
        f"needs {case.job.shape}; team {team} has {used} of the {entitled} {gpu_type} GPUs that it may claim now,"
        f" and {count(ahead, 'job')} of this shape {'waits' if ahead == 1 else 'wait'} to borrow more"
    )
    return message, "wait for jobs of the team to end, or for others to want less"


def _running_max(case: Case) -> tuple[str, str]:
    block = case.block
    message = f"queue {block.queue} runs {block.used} jobs, and may run {block.bound} at once"
    return message, f"wait for one of queue {block.queue} to end, or ask an operator to raise running_max"


def _no_account(case: Case) -> tuple[str, str]:
    return no_account(case.cluster, case.job)


def _no_price(case: Case) -> tuple[str, str]:
    return no_price(case.cluster, case.job, case.at)


def _credits(case: Case) -> tuple[str, str]:
    return credits_short(case.cluster, case.job, case.at)


def _behind(case: Case) -> tuple[str, str]:
    whom = case.reason.behind or "a job before it"
    holds = "may not run yet" if case.standing.strict(case.job.team) else "cannot start yet"
    order = f"queue {case.job.team} is strict" if case.standing.strict(case.job.team) else "the policy is blocking"
    return f"{whom} is before it and {holds}; {order}: nothing passes it", f"wait for {whom}: muster why {whom}"


# Room


def _nodes_unwell(case: Case) -> tuple[str, str]:
    unwell, nodes = case.have["nodes_unwell"], case.have["nodes"]
    verb = "is" if unwell == 1 else "are"
    message = f"needs {case.job.shape}; {unwell} of {count(nodes, 'node')} {verb} suspect, lost, cordoned or drained"
    return message, "bring the nodes back: muster nodes shows them"


def _free(case: Case) -> str:
    have = case.have
    most = f"{have['gpus_free_most']} at most on one node, {count(have['nodes_free_whole'], 'whole node')}"
    return f"{have['gpus_free']} of {have['gpus_total']} are free ({most})"


def _no_room(case: Case) -> tuple[str, str]:
    return f"needs {case.job.shape}; {_free(case)}", "wait for running jobs to end"


def _scattered(case: Case) -> tuple[str, str]:
    message = f"needs {case.job.shape}; {_free(case)}: enough, but in pieces that do not hold it"
    return message, "wait, or ask for more nodes with fewer GPUs each"


def _reserved(case: Case) -> tuple[str, str]:
    if (holder := case.reason.behind) is None:
        return _maintained(case)
    promise = case.cluster.promises.get(holder)
    when = f" for {time_of(promise.start, case.at)}" if promise is not None and promise.start is not None else ""
    message = f"needs {case.job.shape}; {_free(case)}, but they are promised to {holder}{when}"
    if not case.job.spec.max_runtime_s:
        return message, "declare a max_runtime: a job that ends before then may use them"
    return message, "wait, or declare a shorter max_runtime: a job that ends before then may use them"


def _maintained(case: Case) -> tuple[str, str]:
    """Of a job that may last until there is maintenance where it would fit."""
    first = next((closed for closed in Windows(case.cluster).closed if closed.ends > case.at), None)
    starts = f" from {time_of(first.starts, case.at)}" if first is not None else ""
    message = f"needs {case.job.shape}; {_free(case)}, but there is maintenance{starts}, before it would have ended"
    return message, "wait, or declare a shorter max_runtime: a job that ends before then may use them"


def _waits_for_preempted(case: Case) -> tuple[str, str]:
    earmark = case.cluster.earmarks[case.job.job_id]
    victims = [case.cluster.runs[run].job_id for run in earmark.victims if run in case.cluster.runs]
    gpus, free = _of_shares(case, earmark.shares)
    stopping = f"; {some(victims)} {'is' if len(victims) == 1 else 'are'} being stopped for it" if victims else ""
    are = "is" if gpus == 1 else "are"
    return f"{count(gpus, 'GPU')} {are} set aside for it, {free} of {gpus} free{stopping}", WAIT


def _promised(case: Case) -> tuple[str, str]:
    promise = case.cluster.promises[case.job.job_id]
    gpus, free = _of_shares(case, promise.shares)
    nodes = count(len(promise.shares), "node")
    drain = f"{nodes} {'drains' if len(promise.shares) == 1 else 'drain'} towards it: {free} of {gpus} GPUs are free"
    if promise.start is None:
        return f"needs {case.job.shape}; {drain}; a run there has declared no max_runtime", WAIT
    return f"needs {case.job.shape}; {drain}; its start is promised for {time_of(promise.start, case.at)}", WAIT


def _of_shares(case: Case, shares: Sequence[NodeShare]) -> tuple[int, int]:
    """The GPUs of some shares, and how many of them are free."""
    gpus = free = 0
    for share in shares:
        gpus += share.slots.bit_count()
        node = case.cluster.nodes.get(share.node_id)
        free += (node.free & share.slots).bit_count() if node is not None else 0
    return gpus, free


SENTENCES: Final[Mapping[HoldCode, Callable[[Case], tuple[str, str]]]] = {
    HoldCode.NOT_EVALUATED: _not_evaluated,
    HoldCode.QUEUE_PAUSED: _queue_paused,
    HoldCode.BACKING_OFF: _backing_off,
    HoldCode.FAILED_TOO_OFTEN: _failed_too_often,
    HoldCode.NO_SUCH_GPU: _no_such_gpu,
    HoldCode.NO_SUCH_NODE: _no_such_node,
    HoldCode.EXCEEDS_CLUSTER: _exceeds_cluster,
    HoldCode.EXCEEDS_DOMAIN: _exceeds_domain,
    HoldCode.EXCEEDS_LIMIT: _exceeds_limit,
    HoldCode.EXCEEDS_FLOOR: _exceeds_floor,
    HoldCode.OVER_LIMIT: _over_limit,
    HoldCode.OVER_FLOOR: _over_floor,
    HoldCode.OVER_ENTITLEMENT: _over_entitlement,
    HoldCode.RUNNING_MAX: _running_max,
    HoldCode.NO_ACCOUNT: _no_account,
    HoldCode.NO_PRICE: _no_price,
    HoldCode.CREDITS: _credits,
    HoldCode.BEHIND: _behind,
    HoldCode.NODES_UNWELL: _nodes_unwell,
    HoldCode.NO_ROOM: _no_room,
    HoldCode.SCATTERED: _scattered,
    HoldCode.RESERVED: _reserved,
    HoldCode.WAITS_FOR_PREEMPTED: _waits_for_preempted,
    HoldCode.PROMISED: _promised,
}
