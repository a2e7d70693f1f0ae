"""Cordoning nodes over HTTP."""

from events.operator import NodeCordoned, NodeUncordoned
from tests.services.api.cell import NODE, Cell


async def test_a_node_is_cordoned_and_put_back(cell: Cell) -> None:
    """Once each, with who and why; said again, nothing is written."""
    await cell.join()
    seen = []
    for word in ("cordon", "cordon", "uncordon", "uncordon"):
        response = await cell.http.post(
            f"/v1/nodes/{NODE}/{word}", json={"reason": "fan"}, headers={"Muster-Operator": "ada"}
        )
        assert response.status_code == 200, response.text
        seen.append((response.json()["repeated"], response.json()["position"]))
    assert [repeated for repeated, _ in seen] == [False, True, False, True]
    first, second = await cell.log.read(seen[1][1]), await cell.log.read(seen[3][1])
    assert first is not None
    assert second is not None
    assert isinstance(first.event, NodeCordoned)
    assert isinstance(second.event, NodeUncordoned)
    assert (first.event.by, first.event.reason) == ("api:ada", "fan")


async def test_of_many_nodes_one_unknown_refuses_all_with_near_names(cell: Cell) -> None:
    """A slip in the tenth name takes no nine nodes out of use."""
    position = await cell.join()
    await cell.get("/v1/nodes", min_position=position)
    before = await cell.log.end()
    for path, body in (("nodes:cordon", {"nodes": [NODE, "nod-1"]}), ("nodes/nod-1/cordon", None)):
        response = await cell.http.post(f"/v1/{path}", json=body)
        problem = response.json()
        assert (response.status_code, problem["code"]) == (404, "node_not_found")
        assert "no node 'nod-1' has ever joined" in problem["detail"]
        assert problem["hint"] == "did you mean node-1?"
    for many in ([], ["a.b"], [f"n{n}" for n in range(1_001)]):
        assert (await cell.http.post("/v1/nodes:cordon", json={"nodes": many})).status_code == 422
    assert await cell.log.end() == before
    done = await cell.http.post("/v1/nodes:cordon", json={"nodes": [NODE, NODE]})
    assert (done.json()["nodes"], await cell.log.end()) == ([NODE], before + 1)
