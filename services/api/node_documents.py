"""A node and what runs there as documents, from the rows of the tables."""

from datetime import timedelta
from typing import Any

from events.job import Domain
from projections.tables import node_view
from services.api.drain_schemas import DrainShown, Held, Standing, WindowShown


def node(row: node_view.Node) -> dict[str, Any]:
    """The fields of a `Node`."""
    drain = row.drain
    return {
        "node_id": row.node_id,
        "state": row.state,
        "gpu_type": row.gpu_type,
        "gpus_total": row.gpus,
        "gpus_used": row.held,
        "gpus_free": row.free,
        "gpus_out": max(0, row.gpus - row.held - row.free),
        "gpus_sick": row.sick,
        "gpus_cleaning": row.cleaning,
        "gpus_earmarked": row.earmarked,
        "earmarked_for": row.earmarked_for,
        "epoch": row.epoch,
        "address": row.address,
        "agent_version": row.agent_version,
        "instance": row.instance,
        "rack": row.labels.get(Domain.RACK, ""),
        "spine": row.labels.get(Domain.SPINE, ""),
        "labels": row.labels,
        "taints": row.taints,
        "cordoned": row.cordoned_at is not None,
        "cordoned_at": row.cordoned_at,
        "cordoned_by": row.cordoned_by or "",
        "cordon_reason": row.cordon_reason or "",
        "standing": standing(row),
        "drain": DrainShown(
            cause=drain.cause,
            since=drain.since,
            by=drain.by,
            reason=drain.reason,
            deadline=drain.deadline,
            window=drain.window,
            drained_at=drain.done_at,
        )
        if drain is not None
        else None,
        "windows": [
            WindowShown(window=one.name, starts=one.starts, ends=one.ends, reason=one.reason, by=one.by)
            for one in row.windows or ()
        ],
        "retired_at": row.retired_at,
        "runs": len(row.run_ids),
        "silent_s": row.silent_s,
        "patience_s": row.patience_s,
        "clock_ahead_s": row.ahead_s,
        "lemon_score": row.score,
        "joined_at": row.joined_at,
        "state_at": row.state_at,
        "position": row.position,
    }


def standing(row: node_view.NodeRow) -> Standing:
    """Whether a node takes new work, and if not, why: the gravest reason."""
    if row.retired_at is not None:
        return "retired"
    if row.drain is not None:
        if not row.drain.done:
            return "draining"
        return "maintenance" if row.drain.window else "drained"
    return "cordoned" if row.cordoned_at is not None else "open"


def holding(held: node_view.Held) -> Held:
    """A run that holds GPUs of a node."""
    since = held.started_at or held.placed_at
    return Held(
        job_id=held.job_id,
        run_id=held.run_id,
        team=held.team,
        name=held.name or "",
        state=held.state or "",
        gpus=held.gpus,
        since=since,
        ends_by=since + timedelta(seconds=held.max_runtime_s) if held.max_runtime_s else None,
    )
