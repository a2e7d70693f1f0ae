"""Alarms and the health of GPUs over HTTP, and the operator's word that GPUs are sound."""

from typing import Any, get_args

from events.alarm import AlarmCleared, AlarmCode, AlarmRaised
from events.base import GpuUuid, Position
from events.gpu import GpuAction, GpuJudged, GpuSignal, Recovery
from events.operator import GpuReturnAsked
from projections.cluster.fitness import OUT
from projections.tables.gpu_view import GpuState
from services.api.gpu_schemas import Gpu, Health, Verdict
from tests.services.api.cell import CLOCK, NODE, Cell


async def take_out(cell: Cell, gpu: str = "GPU-1") -> Position:
    """A verdict takes the GPU out."""
    return await cell.decide(
        GpuJudged(
            at=CLOCK.now(), node_id=NODE, node_epoch=cell.epoch, gpu_uuid=GpuUuid(gpu), signalled=Position(1),
            signal=GpuSignal.XID, code=79, action=GpuAction.EVICT, returns_by=(Recovery.REBOOT, Recovery.OPERATOR),
            table="2026-11", rule="xid 79", score=8,
        )
    )  # fmt: skip


async def test_a_node_shows_why_its_gpus_are_out(cell: Cell) -> None:
    """The verdict by its line and table, and what returns the GPU; it counts as out."""
    await cell.join()
    node: dict[str, Any] = await cell.get(f"/v1/nodes/{NODE}", min_position=await take_out(cell))

    first, second = node["gpus"]
    assert (first["slot"], first["uuid"], first["state"]) == (0, "GPU-1", "free")
    assert first["health"].items() >= {
        "action": "evict", "signal": "xid", "code": 79, "rule": "xid 79", "table": "2026-11",
        "returns_by": ["reboot", "operator"],
    }.items()  # fmt: skip
    assert first["judged"]["rule"] == "xid 79"
    assert (second["health"], second["judged"]) == (None, None)
    assert (node["gpus_free"], node["gpus_out"]) == (1, 1)


async def test_gpus_are_returned_by_slot_by_uuid_or_all_that_are_out(cell: Cell) -> None:
    """One fact each, with who and why."""
    await cell.join()
    await cell.get("/v1/nodes", min_position=await take_out(cell))
    for named, meant in (([1], ["GPU-2"]), (["GPU-1", "0"], ["GPU-1"]), ([], ["GPU-1"])):
        response = await cell.http.post(
            f"/v1/nodes/{NODE}/gpus/return",
            json={"gpus": named, "reason": "new riser"},
            headers={"Muster-Operator": "ada"},
        )
        assert response.status_code == 200, response.text
        assert response.json()["gpus"] == meant
        fact = await cell.log.read(response.json()["position"])
        assert fact is not None
        assert isinstance(fact.event, GpuReturnAsked)
        assert (fact.event.gpu_uuid, fact.event.by, fact.event.reason) == (meant[0], "api:ada", "new riser")


async def test_what_is_not_there_is_not_returned(cell: Cell) -> None:
    """Nothing is written, and the answer says what there is."""
    await cell.get("/v1/nodes", min_position=await cell.join())
    before = await cell.log.end()
    for path, body, status, code, hint in (
        (f"nodes/{NODE}", {"gpus": [7]}, 404, "gpu_not_found", "it has slots 0 to 1"),
        (f"nodes/{NODE}", {}, 409, "nothing_out", "name one to say that it is sound before it is taken out"),
        (f"nodes/{NODE}", {"gpus": [True]}, 422, "invalid", ""),
        ("nodes/nod-1", {}, 404, "node_not_found", "did you mean node-1?"),
    ):
        problem = (await cell.http.post(f"/v1/{path}/gpus/return", json=body)).json()
        assert (problem["status"], problem["code"], problem["hint"]) == (status, code, hint)
    assert await cell.log.end() == before


async def test_alarms_are_listed_newest_first_and_measured(cell: Cell) -> None:
    """Those that are over too, unless only the others are wished for."""
    raised = AlarmRaised(
        at=CLOCK.now(), code=AlarmCode.BREAKER, message="20 of 100", hint="look", node_ids=(NODE,), count=9
    )
    first = await cell.decide(raised, AlarmCleared(at=CLOCK.now(), code=AlarmCode.BREAKER), raised)
    all_of_them = await cell.get("/v1/alarms", min_position=first)
    assert [alarm["cleared_at"] is None for alarm in all_of_them["alarms"]] == [True, False]
    assert (
        all_of_them["alarms"][0].items()
        >= {"code": "breaker", "nodes": [NODE], "nodes_total": 9, "hint": "look"}.items()
    )
    now = await cell.get("/v1/alarms", raised="true", min_position=first)
    assert now["alarms"] == all_of_them["alarms"][:1]
    page = await cell.get("/v1/alarms", limit=1, min_position=first)
    rest = await cell.get("/v1/alarms", cursor=page["next_cursor"], min_position=first)
    assert [*page["alarms"], *rest["alarms"]] == all_of_them["alarms"]
    assert rest["next_cursor"] is None
    metrics = (await cell.http.get("/metrics")).text
    assert 'muster_alarms{code="breaker"} 1.0' in metrics


def test_documents_name_every_state_and_action() -> None:
    """A word that the tables know and the schema does not would be an error of the server."""
    states = set(get_args(Gpu.model_fields["state"].annotation))
    assert states == {*map(str, GpuState), "cleaning"}
    assert set(get_args(Verdict.model_fields["action"].annotation)) == set(map(str, GpuAction))
    assert set(get_args(Health.model_fields["action"].annotation)) == set(map(str, OUT))
