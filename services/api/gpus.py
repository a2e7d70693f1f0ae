"""Routes about the health of GPUs: alarms, and the word of an operator that GPUs are sound."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query

from events.ask import ReturnGpus
from events.base import GpuUuid, NodeId, Position
from projections.tables import alarm_view, gpu_view
from projections.tables.gpu_view import GpuRow, GpuState
from services.api.cordon import near
from services.api.gpu_schemas import Alarm, AlarmListing, Alarms, Gpu, GpusSaid, Health, ReturnBody, Verdict
from services.api.parts import AtLeast, InHere
from services.api.problems import accepted, trouble
from services.api.standing import Trace, Who
from services.gate.names import shown

router = APIRouter(prefix="/v1", tags=["operating"])


@router.get("/alarms")
async def list_alarms(here: InHere, min_position: AtLeast, listing: Annotated[AlarmListing, Query()]) -> Alarms:
    """What needs a person, and what did; newest first."""
    before = alarm_view.NEWEST if listing.cursor is None else Position(listing.cursor)
    async with here.tables(min_position) as tables:
        rows = await alarm_view.alarms(tables.db, raised=listing.raised, before=before, limit=listing.limit + 1)
    page = rows[: listing.limit]
    return Alarms(
        alarms=[_alarm(row) for row in page],
        next_cursor=page[-1].raised if len(rows) > len(page) else None,
        position=tables.position,
    )


@router.post("/nodes/{node_id}/gpus/return")
async def return_gpus(node_id: str, body: ReturnBody, here: InHere, who: Who, traceparent: Trace = "") -> GpusSaid:
    """These GPUs of the node are sound, or all that are out: they may be used again, whatever they were taken out for."""
    async with here.tables() as tables:
        rows = await gpu_view.gpus_of(tables.db, NodeId(node_id))
    if not rows:
        raise trouble(
            HTTPStatus.NOT_FOUND,
            "node_not_found",
            f"no node {shown(node_id)} has ever joined",
            await near(here, [node_id]),
        )
    uuids = _meant(node_id, body.gpus, rows)
    ask = ReturnGpus(node_id=NodeId(node_id), gpu_uuids=uuids, reason=body.reason, trace=traceparent)
    taken = accepted(await here.gate.ask_nodes(ask, who))
    return GpusSaid(node_id=node_id, gpus=list(uuids), position=taken.position)


def _meant(node_id: str, named: Sequence[int | str], rows: Sequence[GpuRow]) -> tuple[GpuUuid, ...]:
    """The GPUs that are named by slot or UUID; without a name, all that are out. Raises `Troubled`."""
    out = tuple(row.uuid for row in rows if row.health is not None)
    if not named:
        if not out:
            detail = f"no GPU of node {shown(node_id)} is out"
            hint = "name one to say that it is sound before it is taken out"
            raise trouble(HTTPStatus.CONFLICT, "nothing_out", detail, hint)
        return out
    known = {name: row.uuid for row in rows for name in (str(row.slot), row.uuid)}
    unknown = next((name for name in named if str(name) not in known), None)
    if unknown is not None:
        detail = f"node {shown(node_id)} has no GPU {shown(str(unknown))}"
        hint = f"it has slots 0 to {len(rows) - 1}" + (f"; out are {', '.join(out)}" if out else "")
        raise trouble(HTTPStatus.NOT_FOUND, "gpu_not_found", detail, hint)
    return tuple(dict.fromkeys(known[str(name)] for name in named))


def gpu(row: GpuRow) -> Gpu:
    """The document of a GPU."""
    state = "cleaning" if row.cleaning and row.state == GpuState.HELD else row.state
    told: dict[str, Any] = {"state": state}
    return Gpu(
        slot=row.slot,
        uuid=row.uuid,
        run_id=row.run_id or "",
        earmarked_for=row.earmarked_for or "",
        health=_health(row),
        judged=_judged(row),
        **told,
    )


def _health(row: GpuRow) -> Health | None:
    if (found := row.health) is None:
        return None
    told: dict[str, Any] = {"action": found.action.value, "returns_by": [means.value for means in found.returns_by]}
    return Health(
        signal=found.signal, code=found.code, rule=found.rule, table=found.table, since=found.at, **told
    )  # fmt: skip


def _judged(row: GpuRow) -> Verdict | None:
    if (last := row.judged) is None:
        return None
    told: dict[str, Any] = {"action": last.action.value}
    return Verdict(signal=last.signal, code=last.code, rule=last.rule, at=last.at, held_back=last.held_back, **told)


def _alarm(row: alarm_view.AlarmRow) -> Alarm:
    return Alarm(
        code=row.code,
        message=row.message,
        hint=row.hint,
        nodes=list(row.node_ids),
        nodes_total=row.count,
        raised_at=row.raised_at,
        cleared_at=row.cleared_at,
        position=row.raised,
    )
