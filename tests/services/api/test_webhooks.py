"""Webhooks over HTTP: endpoints, secrets, deliveries and replays, against a real log, real tables and a real receiver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from runtime.postgres import create_pool
from services.api import webhook_schemas
from services.webhooks import schema
from services.webhooks.address import parse_networks
from services.webhooks.post import Post
from services.webhooks.run import Webhooks
from services.webhooks.signature import parse_secret, spell_secret
from tests.services.api.cell import CLOCK, Cell
from tests.services.webhooks.receiver import Receiver, receiving
from tests.services.webhooks.sending import eventually

BODY = {"url": "https://hooks.example/a", "types": ["job.*"], "key": "k1"}
SECRET = spell_secret(bytes(range(32)))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that answers 204."""
    async with receiving() as made:
        yield made


@pytest.fixture
async def made(cell: Cell, postgres_dsn: str) -> Cell:
    """A cell in which webhooks can be kept."""
    pool = await create_pool(postgres_dsn, name="test", size_max=1)
    async with pool.acquire() as conn:
        await schema.create(conn)
    await pool.close()
    return cell


@asynccontextmanager
async def sending(cell: Cell, dsn: str) -> AsyncIterator[None]:
    """The part that sends runs, with the rights of the API's user."""
    reader = cell.open_reader()
    pool = await create_pool(dsn, name="webhooks", size_max=4)
    async with Post(CLOCK, parse_networks(["127.0.0.0/8"])) as post:
        part = asyncio.create_task(Webhooks(reader, pool, post, CLOCK, kept=timedelta(days=30)).run())
        try:
            yield
            assert not part.done()
        finally:
            part.cancel()
            await asyncio.gather(part, return_exceptions=True)
            pool.terminate()
            reader.close()


async def post(cell: Cell, path: str, status: int, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to a POST, which has this status."""
    response = await cell.http.post(f"/v1/webhooks{path}", json=body, headers={"Muster-Operator": "ada"})
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_an_endpoint_gets_what_happens_signed_with_its_secret(
    cell: Cell, receiver: Receiver, postgres_dsn: str
) -> None:
    """From the request that makes it to the receiver's check; the secret is shown once."""
    async with sending(cell, postgres_dsn):
        await eventually(lambda: _kept(cell), what="a place to keep webhooks in")
        await cell.submit()
        one = await post(cell, "", 201, {"url": receiver.url, "types": ["job.submitted"], "teams": ["red"]})
        assert one["created_by"] == "api:ada"
        job = await cell.submit(team="red")
        await cell.submit(team="blue")
        tested = await post(cell, f"/{one['endpoint_id']}:test", 202)
        await eventually(lambda: _is(len(receiver.received) == 2), what="two deliveries")
        listed = await cell.get(f"/v1/webhooks/{one['endpoint_id']}/deliveries")
        assert {row["event_type"] for row in listed["deliveries"]} == {
            "musterbook.job.submitted.v1", "musterbook.webhook.test.v1",
        }  # fmt: skip
    secret = parse_secret(one["secret"])
    assert all(received.signed_by(secret) for received in receiver.received)
    event = next(received for received in receiver.received if received.id != tested["webhook_id"])
    recorded = await cell.log.read(job["position"])
    assert recorded is not None
    assert event.body == recorded.document
    shown = await cell.http.get("/v1/webhooks")
    detail = await cell.http.get(f"/v1/webhooks/{one['endpoint_id']}")
    for response in (shown, detail):
        assert "whsec_" not in response.text
        assert '"secret"' not in response.text


async def _kept(cell: Cell) -> bool:
    response = await cell.http.get("/v1/webhooks")
    assert response.status_code == 200 or response.json()["code"] == "webhooks_absent"
    return response.is_success


async def _is(holds: bool) -> bool:
    return holds


async def test_a_range_is_sent_again(made: Cell, receiver: Receiver, postgres_dsn: str) -> None:
    """By positions and by times, under the same ids; what was before the endpoint too; and only what it wants."""
    before = await made.submit()
    one = await post(made, "", 201, {"url": receiver.url, "types": ["job.submitted"]})
    name = one["endpoint_id"]
    async with sending(made, postgres_dsn):
        after = await made.submit()
        await eventually(lambda: _is(len(receiver.received) == 1), what="the delivery")
        body = {"after": str(before["position"] - 1), "before": str(after["position"])}
        asked = await post(made, f"/{name}:replay", 202, body)
        assert (asked["after"], asked["until"]) == (before["position"] - 1, after["position"] - 1)
        await eventually(lambda: _is(len(receiver.received) == 2), what="the event before it")
        await eventually(lambda: _replays_done(made, name), what="the end of the replay")
        await post(made, f"/{name}:replay", 202, {"after": "1h ago"})
        await eventually(lambda: _is(len(receiver.received) == 4), what="all again")
        await eventually(lambda: _replays_done(made, name), what="the end of the replay")
    assert receiver.ids.count(receiver.received[0].id) == 2
    assert len(set(receiver.ids)) == 2
    detail = await made.get(f"/v1/webhooks/{name}")
    assert [replay["matched"] for replay in detail["replays"]] == [2, 1]


async def _replays_done(cell: Cell, name: str) -> bool:
    detail = await cell.get(f"/v1/webhooks/{name}")
    return all(replay["ended_at"] for replay in detail["replays"]) and not detail["deliveries"]["waiting"]


async def test_the_same_key_is_the_same_endpoint(made: Cell) -> None:
    """A client that got no answer asks again, and has one endpoint; its secret it knows, for it gave it."""
    first = await post(made, "", 201, BODY | {"secret": SECRET})
    again = await post(made, "", 200, BODY | {"secret": SECRET})
    assert (first["secret"], again["secret"], again["repeated"]) == (SECRET, "", True)
    assert first["endpoint_id"] == again["endpoint_id"]
    assert (await post(made, "", 409, BODY | {"types": ["credit.*"]}))["code"] == "conflict"
    assert len((await made.get("/v1/webhooks"))["webhooks"]) == 1


async def test_a_secret_is_replaced_with_a_grace(made: Cell) -> None:
    """Both sign meanwhile; the same secret again changes nothing; with no grace only the new one signs."""
    name = (await post(made, "", 201, BODY))["endpoint_id"]
    rotated = await post(made, f"/{name}:rotate", 200, {"secret": SECRET})
    assert (rotated["secret"], rotated["repeated"]) == (SECRET, False)
    assert (await post(made, f"/{name}:rotate", 200, {"secret": SECRET}))["repeated"] is True
    assert (await made.get(f"/v1/webhooks/{name}"))["secrets"] == 2
    assert parse_secret((await post(made, f"/{name}:rotate", 200, {"grace_s": 0}))["secret"])
    assert (await made.get(f"/v1/webhooks/{name}"))["secrets"] == 1


async def test_an_endpoint_is_changed_stopped_and_removed(made: Cell) -> None:
    """What happens while it is stopped it does not get; what is left out of a change stays."""
    one = await post(made, "", 201, BODY | {"teams": ["red"], "description": "paging"})
    path = f"/v1/webhooks/{one['endpoint_id']}"
    changed = (await made.http.patch(path, json={"types": ["credit.*"], "accounts": ["ops"]})).json()
    assert (changed["types"], changed["teams"], changed["accounts"], changed["description"]) == (
        ["musterbook.credit.*"], ["red"], ["ops"], "paging",
    )  # fmt: skip
    stopped = (await made.http.patch(path, json={"enabled": False})).json()
    assert (stopped["enabled"], stopped["stopped"], stopped["after"]) == (False, "operator", one["after"])
    for word in ("test", "replay"):
        refused = await post(made, f"/{one['endpoint_id']}:{word}", 409, {"after": "0"})
        assert "is stopped (operator)" in refused["detail"]
    position = (await made.submit())["position"]
    enabled = (await made.http.patch(path, json={"enabled": True})).json()
    assert (enabled["enabled"], enabled["stopped"], enabled["after"]) == (True, "", position)
    assert (await made.http.delete(path)).json() == {"endpoint_id": one["endpoint_id"]}
    for response in (
        await made.http.get(path), await made.http.delete(path), await made.http.patch(path, json={}),
        await made.http.get(f"{path}/deliveries"), await made.http.post(f"{path}:rotate"),
    ):  # fmt: skip
        assert (response.status_code, response.json()["code"]) == (404, "webhook_not_found")


NO_ENDPOINTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"url": "ftp://hooks.example"}, "url: must begin with https://"),
    ({"url": "https://169.254.169.254/latest"}, "url: 169.254.169.254 is not an address of the public internet"),
    ({"url": "http://8.8.8.8/"}, "url: plain http"),
    ({"url": "https://user:word@hooks.example/"}, "url: must not hold a user"),
    ({"types": ["job.plaaced"]}, "types: no type fits"),
    ({"types": []}, "types"),
    ({"teams": ["Red"]}, "teams: 'Red' has capital letters"),
    ({"accounts": ["a.b"]}, "accounts: 'a.b' has a dot"),
    ({"secret": "whsec_c2hvcnQ="}, "secret: a secret has 24 to 64 bytes, not 5"),
    ({"extra": 1}, "extra"),
)


async def test_what_makes_no_endpoint_is_refused(made: Cell) -> None:
    """With the field and what was meant; nothing is kept."""
    for changed, told in NO_ENDPOINTS:
        problem = await post(made, "", 422, BODY | changed)
        assert problem["detail"].startswith(told)
    assert (await made.get("/v1/webhooks"))["webhooks"] == []


NO_RANGES = (
    ({"after": "soon"}, "after: 'soon' is no moment"),
    ({"after": "1h ago", "before": "2h ago"}, "nothing lies behind"),
    ({"after": "1:900"}, "after: 1:900 is beyond the end of the log"),
    ({"after": "0", "before": "9:1"}, "before: 9:1 is beyond the end of the log"),
)


async def test_a_range_that_is_none_is_refused(made: Cell) -> None:
    """Before anything is sent."""
    name = (await post(made, "", 201, BODY))["endpoint_id"]
    for body, told in NO_RANGES:
        assert (await post(made, f"/{name}:replay", 422, body))["detail"].startswith(told)


async def test_one_replay_at_a_time_goes_to_an_endpoint(made: Cell) -> None:
    """The same again is the same; another waits for its turn."""
    name = (await post(made, "", 201, BODY))["endpoint_id"]
    await made.submit()
    first = await post(made, f"/{name}:replay", 202, {"after": "0", "before": "1:2"})
    again = await post(made, f"/{name}:replay", 202, {"after": "0", "before": "1:2"})
    assert (again["repeated"], again["replay_id"]) == (True, first["replay_id"])
    assert (await post(made, f"/{name}:replay", 409, {"after": "0"}))["code"] == "conflict"


def test_no_answer_but_two_has_a_place_for_a_secret() -> None:
    """It is shown when it is made, by whoever made it, and nowhere else."""
    answers = (
        webhook_schemas.Webhook, webhook_schemas.WebhookDetail, webhook_schemas.Webhooks, webhook_schemas.Tested,
        webhook_schemas.Deliveries, webhook_schemas.Delivery, webhook_schemas.Replayed, webhook_schemas.WebhookRemoved,
    )  # fmt: skip
    assert all("secret" not in answer.model_fields for answer in answers)
    assert "secret" in webhook_schemas.WebhookMade.model_fields.keys() & webhook_schemas.Rotated.model_fields.keys()
