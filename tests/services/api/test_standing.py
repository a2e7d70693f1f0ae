"""Queues and policy over HTTP: read with an ETag, set over the document that was read, refused whole."""

import asyncio
from typing import Any

import httpx

from events.policy import PolicySet
from events.queues import QueuesSet
from tests.services.api.cell import Cell

PATHS = {"queues": "/v1/queues/document", "policy": "/v1/policy"}
QUEUES: dict[str, Any] = {"queues": [{"name": "research", "weight": 5, "children": [{"name": "vision", "weight": 3}]}]}
POLICY: dict[str, Any] = {"order": "fifo", "lost_after": "2m"}
DOCUMENTS = {"queues": (QUEUES, {"queues": [{"name": "sales", "weight": 1}]}), "policy": (POLICY, {"promises": 4})}


async def put(cell: Cell, name: str, document: Any, etag: str = "", **headers: str) -> httpx.Response:
    """The answer to a document that is put over the one with this ETag."""
    given = ({"If-Match": etag} if etag else {}) | {key.replace("_", "-"): value for key, value in headers.items()}
    return await cell.http.put(PATHS[name], json=document, headers=given)


async def test_a_document_is_set_over_the_one_that_was_read(cell: Cell) -> None:
    """First over none, then over the first; each answer has the ETag for the next, the log who set it, and over what."""
    for name in PATHS:
        await _set_over(cell, name)


async def _set_over(cell: Cell, name: str) -> None:
    first, second = DOCUMENTS[name]
    nothing = await cell.http.get(PATHS[name])
    assert (nothing.headers["etag"], nothing.json()["at"], nothing.json()["by"]) == ('"0"', None, "")

    done = await put(cell, name, first, nothing.headers["etag"], Muster_Operator="ada")
    again = await put(cell, name, second, done.headers["etag"])
    read = await cell.http.get(PATHS[name])

    assert (done.status_code, done.json()["changed"], again.json()["changed"]) == (200, True, True)
    assert (read.headers["etag"], read.json()["by"]) == (again.headers["etag"], "api:operator")
    back = await put(cell, name, read.json()["document"], read.headers["etag"])
    assert back.json()["changed"] is False  # what is read can be put
    for response, replaced, by in ((done, 0, "api:ada"), (again, done.json()["position"], "api:operator")):
        recorded = await cell.log.read(response.json()["position"])
        assert recorded is not None
        assert isinstance(recorded.event, QueuesSet | PolicySet)
        assert (recorded.event.by, recorded.event.replaces) == (by, replaced)


async def test_the_same_document_again_writes_nothing(cell: Cell) -> None:
    """Whatever it says it replaces: so a client whose answer was lost may ask again. Nor does a dry run."""
    for name in PATHS:
        await _again(cell, name)


async def _again(cell: Cell, name: str) -> None:
    first, second = DOCUMENTS[name]
    done = await put(cell, name, first, '"0"')
    end = await cell.log.end()

    for etag in ('"0"', done.headers["etag"], "*"):
        again = await put(cell, name, first, etag)
        assert (again.status_code, again.json()["changed"], again.json()["changes"]) == (200, False, [])
        assert again.json()["would_change"] is False
        assert again.headers["etag"] == done.headers["etag"]
    tried = await cell.http.put(
        PATHS[name], json=second, params={"dry_run": "true"}, headers={"If-Match": done.headers["etag"]}
    )
    assert (tried.json()["changed"], tried.json()["would_change"], bool(tried.json()["changes"])) == (False, True, True)
    assert await cell.log.end() == end


async def test_of_two_operators_one_sets_it_and_the_other_is_told_who(cell: Cell) -> None:
    """412, with the ETag of the document that holds; nothing of the other's is written."""
    for name in PATHS:
        await _race(cell, name)


async def _race(cell: Cell, name: str) -> None:
    before = await cell.log.end()
    both = await asyncio.gather(
        *(
            put(cell, name, document, '"0"', Muster_Operator=by)
            for document, by in zip(DOCUMENTS[name], "ab", strict=True)
        )
    )
    won, lost = sorted(both, key=lambda response: response.status_code)

    assert (won.status_code, lost.status_code) == (200, 412)
    assert lost.headers["etag"] == won.headers["etag"]
    assert lost.headers["content-type"] == "application/problem+json"
    problem = lost.json()
    assert (problem["code"], problem["position"]) == ("moved", won.json()["position"])
    assert "UTC by api:" in problem["detail"]
    assert await cell.log.end() == before + 1
    assert (await put(cell, name, DOCUMENTS[name][0], '"0"')).status_code in {200, 412}


CONDITIONS: tuple[tuple[dict[str, str], int, str], ...] = (
    ({}, 428, "precondition_required"),
    ({"If-Match": "7"}, 422, "invalid"),
    ({"If-Match": '"x"'}, 422, "invalid"),
    ({"If-Match": '"1", "2"'}, 422, "invalid"),
    ({"If-Match": '"12345"'}, 412, "moved"),
    ({"If-None-Match": '"1"'}, 422, "invalid"),
    ({"If-None-Match": "*", "If-Match": "*"}, 422, "invalid"),
    ({"If-Match": "*", "Muster-Operator": "a b"}, 422, "invalid"),
)


async def test_a_document_says_what_it_replaces(cell: Cell) -> None:
    """Nothing is overwritten by leaving that out; `*` says that one means to."""
    before = await cell.log.end()
    for headers, status, code in CONDITIONS:
        response = await cell.http.put(PATHS["queues"], json=QUEUES, headers=headers)
        assert (response.status_code, response.json()["code"]) == (status, code), headers
    assert await cell.log.end() == before
    first = await cell.http.put(PATHS["queues"], json=QUEUES, headers={"If-None-Match": "*"})
    second = await cell.http.put(PATHS["queues"], json={"queues": []}, headers={"If-None-Match": "*"})
    third = await cell.http.put(PATHS["queues"], json={"queues": []}, headers={"If-Match": "*"})
    assert [response.status_code for response in (first, second, third)] == [200, 412, 200]


async def test_what_is_wrong_is_refused_whole_with_its_place(cell: Cell) -> None:
    """And the log ends where it did: a document is set or it is not."""
    before = await cell.log.end()
    for name, body, detail in (
        ("queues", {"queues": [{"name": "a"}, {"name": "b", "wieght": 2}]}, "queues.1.wieght: there is no such field"),
        ("queues", {"queues": [{"name": "a"}, {"name": "a"}]}, "queues.1.name: 'a' is there twice"),
        ("queues", [], "must be a JSON object"),
        ("policy", {"lost_after": "1s"}, "lost_after: must be more than suspect_after"),
        ("policy", {"promise": 1}, "promise: there is no such field"),
    ):
        response = await put(cell, name, body, "*")
        assert response.status_code == 422, response.text
        assert detail in response.json()["detail"]
    assert await cell.log.end() == before


async def test_floors_above_the_cluster_are_a_warning(cell: Cell) -> None:
    """Capacity comes and goes: the document is taken, and what it promises too much is said."""
    position = await cell.join()
    await cell.get("/v1/nodes", min_position=position)
    body = {"queues": [{"name": "a", "floor": 3, "gpu_types": {"a100": {"limit": 1}}}]}
    done = (await put(cell, "queues", body, "*")).json()
    assert done["changed"]
    assert done["warnings"] == [
        "floors add up to 3 GPUs, the cluster has 2: each gets its part of that",
        "GPU type a100, in the bounds of a, is on no node: the types are h100",
    ]


async def test_the_documents_of_the_api_name_them(cell: Cell) -> None:
    """OpenAPI has the routes, and the schemas that their bodies point to are there."""
    paths = (await cell.get("/openapi.json"))["paths"]
    for path in PATHS.values():
        assert {"get", "put"} <= paths[path].keys()
    for name in PATHS:
        assert (await cell.get(f"/schemas/{name}.json"))["additionalProperties"] is False
