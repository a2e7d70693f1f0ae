"""Draining, maintenance and retiring over HTTP: one node, some, or all with a label; and what is shown of it."""

from datetime import timedelta
from typing import Any

from events.base import JobId
from events.fleet import DrainCause, NodeDrained, NodeRetired
from events.operator import MaintenanceCancelled, MaintenancePlanned, NodeDrainAsked, NodeUndrainAsked, OperatorEvent
from tests.services.api.cell import CLOCK, NODE, Cell


async def last_word(cell: Cell) -> OperatorEvent:
    """What was last said of the node."""
    found = await cell.log.last(f"operator.{NODE}")
    assert found is not None
    assert isinstance(found.event, OperatorEvent)
    return found.event


async def post(cell: Cell, path: str, **body: Any) -> dict[str, Any]:
    """The answer to what an operator says."""
    response = await cell.http.post(f"/v1/nodes{path}", json=body, headers={"Muster-Operator": "ada"})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_a_node_is_drained_and_says_what_it_waits_for(cell: Cell) -> None:
    """Draining while a run holds GPUs, drained once that was said; who, why, and since when."""
    await cell.join()
    job_id = JobId((await cell.submit("k", max_runtime="2h"))["job_id"])
    await cell.run(job_id)
    drained = await post(cell, f"/{NODE}/drain", reason="fan", deadline="30m")
    at = drained["position"]

    word = await last_word(cell)
    assert isinstance(word, NodeDrainAsked)
    assert word.deadline is not None
    assert abs(word.deadline - CLOCK.now() - timedelta(minutes=30)) < timedelta(seconds=60)
    node = await cell.get(f"/v1/nodes/{NODE}", min_position=at)
    assert (node["standing"], node["runs"], node["gpus_used"]) == ("draining", 1, 2)
    shown = node["drain"]
    assert (shown["cause"], shown["reason"], shown["by"], shown["drained_at"]) == ("operator", "fan", "api:ada", None)
    (held,) = node["held"]
    assert (held["job_id"], held["gpus"], held["state"], held["name"]) == (job_id, 2, "running", "train")
    assert held["ends_by"] is not None
    done = await cell.decide(NodeDrained(at=CLOCK.now(), node_id=NODE, node_epoch=cell.epoch))
    (listed,) = (await cell.get("/v1/nodes", min_position=done))["nodes"]
    assert (listed["standing"], listed["drain"]["drained_at"] is not None) == ("drained", True)

    metrics = (await cell.http.get("/metrics")).text
    assert 'muster_nodes{standing="drained",state="up"} 1.0' in metrics

    back = await post(cell, "/undrain", nodes=[NODE], reason="mended")
    assert isinstance(await last_word(cell), NodeUndrainAsked)
    node = await cell.get(f"/v1/nodes/{NODE}", min_position=back["position"])
    assert (node["standing"], node["drain"]) == ("open", None)


async def test_windows_are_planned_by_label_and_cancelled(cell: Cell) -> None:
    """With moments as people type them."""
    at = await cell.join()
    await cell.get("/v1/nodes", min_position=at)
    said = await post(cell, "/maintain", labels={"rack": "r1"}, window="fans", starts="2h", ends="5h")
    assert said["nodes"] == [NODE]
    word = await last_word(cell)
    assert isinstance(word, MaintenancePlanned)
    assert timedelta(hours=2, minutes=59) < word.ends - word.starts <= timedelta(hours=3, seconds=1)
    node = await cell.get(f"/v1/nodes/{NODE}", min_position=said["position"])
    assert [(one["window"], one["by"]) for one in node["windows"]] == [("fans", "api:ada")]
    assert node["standing"] == "open"
    gone = await post(cell, f"/{NODE}/maintain", window="fans", cancel=True)
    assert isinstance(await last_word(cell), MaintenanceCancelled)
    node = await cell.get(f"/v1/nodes/{NODE}", min_position=gone["position"])
    assert node["windows"] == []


async def test_a_retired_node_says_so_and_is_found_by_no_label(cell: Cell) -> None:
    """Nor may anything be said of it any more."""
    await cell.join()
    await post(cell, f"/{NODE}/retire", reason="sold")
    word = await last_word(cell)
    assert isinstance(word, NodeDrainAsked)
    assert word.cause is DrainCause.RETIRE
    at = await cell.decide(
        NodeDrained(at=CLOCK.now(), node_id=NODE, node_epoch=cell.epoch),
        NodeRetired(at=CLOCK.now(), node_id=NODE, node_epoch=cell.epoch),
    )
    node = await cell.get(f"/v1/nodes/{NODE}", min_position=at)
    assert (node["standing"], node["retired_at"] is not None) == ("retired", True)
    for path, body, status, told in (
        ("/undrain", {"labels": {"rack": "r1"}}, 404, "no node has rack=r1"),
        (f"/{NODE}/undrain", {}, 403, "was retired for good"),
    ):
        response = await cell.http.post(f"/v1/nodes{path}", json=body)
        assert (response.status_code, told in response.json()["detail"]) == (status, True), response.text


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/drain", {"reason": "fan"}, 422, "name nodes or give labels"),
    ("/drain", {"reason": "fan", "nodes": [NODE], "labels": {"rack": "r1"}}, 422, "one of both"),
    ("/drain", {"nodes": [NODE]}, 422, "reason"),
    ("/drain", {"nodes": [NODE], "reason": " "}, 422, "reason: must be said"),
    ("/drain", {"nodes": [NODE], "reason": "fan", "cause": "gpu"}, 422, "cause"),
    (
        "/drain",
        {"nodes": [NODE], "reason": "fan", "deadline": "soon"},
        422,
        "deadline: must be a time with its zone",
    ),
    ("/drain", {"labels": {"rack": "r9"}, "reason": "fan"}, 404, "no node has rack=r9"),
    (f"/{NODE}/drain", {"nodes": [NODE], "reason": "fan"}, 422, "the address names the node"),
    ("/nod-1/drain", {"reason": "fan"}, 404, "no node 'nod-1' has ever joined"),
    (f"/{NODE}/maintain", {"window": "w", "starts": "1h"}, 422, "ends: is missing"),
    (f"/{NODE}/maintain", {"window": "w", "starts": "1h", "ends": "2h", "cancel": True}, 422, "cancel: "),
    (f"/{NODE}/maintain", {"window": "w", "starts": "2h", "ends": "1h"}, 422, "ends: must be after starts"),
    (f"/{NODE}/maintain", {"window": "a b", "starts": "1h", "ends": "2h"}, 422, "window: "),
]


async def test_what_is_wrong_is_said_and_nothing_written(cell: Cell) -> None:
    """Each with its field; a name that no node has, with the one that was probably meant."""
    at = await cell.join()
    await cell.get("/v1/nodes", min_position=at)
    for path, body, status, told in WRONG:
        response = await cell.http.post(f"/v1/nodes{path}", json=body)
        assert response.status_code == status, response.text
        assert told in response.json()["detail"]
    assert await cell.log.end() == at
    response = await cell.http.get("/v1/nodes/nod-1")
    assert (response.status_code, response.json()["hint"]) == (404, "did you mean node-1?")
