"""What brings a node from what was found on it to what is desired of it."""

from agent.core.action import (
    Action,
    Decline,
    Describe,
    EndLeftovers,
    Forget,
    ForgetReset,
    FoundClean,
    Join,
    Release,
    ReportEnded,
    ReportGpu,
    ReportSaved,
    ReportStarted,
    ReportUnkillable,
    Reset,
    Start,
    Stop,
)
from agent.core.found import Exit, Found, Step, Told, Trace, Why
from agent.core.ladder import due, isolated, over_time, rungs_s, unkillable
from events.base import GpuUuid, RunId
from events.desired import Desired, DesiredShare, Order


def reconcile(desired: Desired | None, found: Found) -> list[Action]:
    """What brings the node from what was `found` on it to what is `desired` of it.

    Looks at the two states and at nothing else, so a restart, a lost message and an ordinary tick all take this one
    path. What has to wait is left out, and comes back at the next tick.
    """
    replaced = superseded(desired, found)
    obeyed = None if replaced else _obeyed(desired, found)
    shares = {share.run_id: share for share in obeyed.shares} if obeyed else {}
    actions: list[Action] = [EndLeftovers()] if found.leftovers else []
    if not replaced:
        actions += _membership(desired, found)
    for run_id, trace in sorted(found.traces.items()):
        share = shares.get(run_id)
        why = _why_stop(trace, share, obeyed, found)
        if why is None and (replaced or _is_lost(desired, found)):
            why = Why.DEAD_EPOCH
        if trace.alive and why is not None:
            actions += _stop(run_id, trace, why, share, found)
        if share is not None:
            actions += _reports(share, trace, found)
        elif obeyed is not None and not trace.alive and trace.shipped:
            actions.append(Forget(run_id))
    for run_id in sorted(shares.keys() - found.traces.keys()):
        actions += _begin(shares[run_id], found)
    return actions + _resets(obeyed, found) if obeyed is not None else actions


def superseded(desired: Desired | None, found: Found) -> bool:
    """Whether another agent has taken this node over: this one reports and starts nothing any more.

    One that this agent was itself before is no other: its joining came late, from before a boot.
    """
    return desired is not None and 0 < found.epoch < desired.epoch and not _ours(desired, found)


def _ours(desired: Desired, found: Found) -> bool:
    """Whether it was written for this agent, or for one that it was before."""
    return desired.instance == found.instance or desired.instance in found.former


def in_question(desired: Desired | None, found: Found) -> frozenset[GpuUuid]:
    """The GPUs of which it matters now whether a process holds them."""
    asked = set(found.gpus - found.pooled)
    for share in desired.shares if desired is not None and desired.epoch == found.epoch else ():
        trace = found.traces.get(share.run_id)
        if trace is None or (trace.end is not None and Told.RELEASED not in trace.told):
            asked.update(share.gpu_uuids)
    if desired is not None and desired.epoch == found.epoch:
        asked.update(found.gpus.intersection(desired.resets) - found.unready)
    return frozenset(asked)


def _obeyed(desired: Desired | None, found: Found) -> Desired | None:
    """The desired state, if it was written for this life of this node and this agent."""
    if desired is None or desired.epoch != found.epoch or desired.instance != found.instance or desired.lost:
        return None
    return desired


def _is_lost(desired: Desired | None, found: Found) -> bool:
    """Whether this life of the node was given up."""
    if desired is None or desired.instance != found.instance:
        return False
    return desired.epoch == found.epoch and desired.lost


def _membership(desired: Desired | None, found: Found) -> list[Action]:
    alive = any(trace.alive for trace in found.traces.values())
    if found.epoch == 0:
        return [Join()]
    if desired is not None and _ours(desired, found) and desired.epoch > found.epoch:
        return [Join()]  # an answer to a join was lost, or one came late: whichever life is meant, a new one is sure
    if _is_lost(desired, found):
        return [] if alive or found.leftovers else [Join()]
    told: list[Action] = [] if found.described else [Describe(found.epoch)]
    told += [ReportGpu(found.epoch, telling) for telling in found.tellings]
    if found.leftovers:
        return told
    clean = tuple(sorted(found.gpus - found.pooled - found.missing - _held(found)))
    return [*told, FoundClean(found.epoch, clean)] if clean else told


def _held(found: Found) -> frozenset[GpuUuid]:
    """The GPUs that something holds: a run of ours that lives, whatever process, a reset."""
    ours = (gpu for trace in found.traces.values() if trace.alive for gpu in trace.share.gpu_uuids)
    return found.busy.union(ours, found.resetting)


def _why_stop(trace: Trace, share: DesiredShare | None, obeyed: Desired | None, found: Found) -> Why | None:
    """Why living ranks must go; None when they may stay. The first reason stays the reason."""
    failed = trace.failed
    if trace.stopping is not None:
        return trace.stopping.why
    if trace.epoch != found.epoch or not trace.this_boot:
        return Why.DEAD_EPOCH
    if share is not None and share.order is Order.STOP:
        return Why.ORDER
    if failed is not None:
        return Why.RANK_FAILED if trace.started else Why.START_FAILED
    if over_time(trace):
        return Why.TIME_LIMIT
    if isolated(trace.share.spec, found.silent_s, found.lost_after_s):
        return Why.ISOLATED
    return Why.UNWANTED if obeyed is not None and share is None else None


def _stop(run_id: RunId, trace: Trace, why: Why, share: DesiredShare | None, found: Found) -> list[Action]:
    spec = trace.share.spec
    age_s, taken = (trace.stopping.age_s, trace.stopping.step) if trace.stopping else (0.0, Step.NONE)
    step = due(spec, why, age_s, found.lost_after_s)
    if trace.strays and not any(rank.phase == "running" for rank in trace.ranks):
        step = Step.KILL  # its supervisors are gone: nobody else ends what they left
    if step <= taken < Step.KILL:
        return []
    left_s = max(0.0, rungs_s(spec, why, found.lost_after_s)[1] - age_s)
    cause = (share.reason or share.cause) if share else None
    return [Stop(run_id, why, step, cause, left_s)]


def _reports(share: DesiredShare, trace: Trace, found: Found) -> list[Action]:
    """What the control plane has not accepted yet of a run that it still names."""
    actions: list[Action] = []
    if trace.started and trace.this_boot and Told.STARTED not in trace.told:
        actions.append(ReportStarted(found.epoch, share.run_id))
    if trace.saved and trace.this_boot and Told.ENDED not in trace.told:
        actions.append(ReportSaved(found.epoch, share.run_id, trace.saved))
    if trace.stopping is not None and unkillable(trace, found.unkillable_after_s) and Told.UNKILLABLE not in trace.told:
        actions.append(ReportUnkillable(found.epoch, share.run_id, trace.pids, int(trace.stopping.killed_s)))
    if isinstance(end := trace.end, Exit):
        if Told.ENDED not in trace.told:
            actions.append(ReportEnded(found.epoch, share.run_id, end))
        if Told.RELEASED not in trace.told and found.busy.isdisjoint(share.gpu_uuids):
            actions.append(Release(found.epoch, share.run_id, share.slots))
    return actions


def _begin(share: DesiredShare, found: Found) -> list[Action]:
    """A share without a trace: started once its GPUs are clean, or declined for ever."""
    if share.order is Order.STOP:
        return [Decline(share)]
    for missing in sorted(set(share.gpu_uuids) - found.gpus):
        return [Decline(share, f"GPU {missing} is not on this node")]
    for missing in sorted(found.missing.intersection(share.gpu_uuids)):
        return [Decline(share, f"GPU {missing} does not answer")]
    if not share.spec.command:
        return [Decline(share, "its spec is not known here: it may be of a newer version than this agent")]
    clean = _held(found).isdisjoint(share.gpu_uuids)
    if clean and not found.leftovers and not isolated(share.spec, found.silent_s, found.lost_after_s):
        return [Start(share)]
    return []


def _resets(obeyed: Desired, found: Found) -> list[Action]:
    """GPUs are reset once nothing holds them and no share names them. What was tried of one is kept while it is wanted."""
    forget = sorted(found.tried.difference(obeyed.resets, found.resetting))
    if found.leftovers:
        return list(map(ForgetReset, forget))
    held = _held(found).union(*(share.gpu_uuids for share in obeyed.shares))
    free = found.gpus - held - found.unready
    return [*map(ForgetReset, forget), *(Reset(gpu) for gpu in obeyed.resets if gpu in free)]
