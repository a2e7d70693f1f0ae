"""What machines ask: does it live, is it of use, its metrics, its schemas; and what still works when a server is gone."""

import re

import msgspec
import pytest
from jsonschema import Draft202012Validator

from events.ask import Why
from events.base import JobId, Position
from events.codec import TYPES, type_of
from runtime.embedded.nats import EmbeddedNats
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.nats import Connection
from runtime.postgres import create_pool
from runtime.serve_requests import Served, serving
from tests.services.api.cell import SPEC, SUBJECTS, Cell, open_cell


async def say_leader(_: str, __: bytes) -> bytes:
    """A control plane that leads, and knows no job."""
    return msgspec.json.encode(Why(job_id=JobId(""), found=False, position=Position(1), leader=True))


async def test_it_is_ready_when_everything_is_there(cell: Cell) -> None:
    """Without a control plane it is not, and says so."""
    assert (await cell.http.get("/healthz")).json() == {"status": "ok"}
    await cell.get("/v1/jobs", min_position=(await cell.submit())["position"])
    alone = await cell.http.get("/readyz")
    assert (alone.status_code, alone.json()["ready"]) == (503, False)
    assert [name for name, check in alone.json()["checks"].items() if not check["ok"]] == ["control"]
    async with serving(cell.system, Served(SUBJECTS.why, "why", say_leader, b"")):
        ready = await cell.http.get("/readyz")
    assert (ready.status_code, ready.json()["ready"], ready.json()["lag"]) == (200, True, 0)


async def test_it_is_not_ready_when_nothing_is_decided_any_more(cell: Cell) -> None:
    """A control plane that met a record that it cannot obey answers, and says so."""
    halted = msgspec.json.encode(Why(job_id=JobId(""), found=False, position=Position(9), halted=Position(7)))

    async def say_halted(_: str, __: bytes) -> bytes:
        return halted

    async with serving(cell.system, Served(SUBJECTS.why, "why", say_halted, b"")):
        ready = await cell.http.get("/readyz")
    assert ready.status_code == 503
    assert "since record 0:7" in ready.json()["checks"]["control"]["detail"]


async def test_metrics_count_what_was_asked(cell: Cell) -> None:
    """Requests by route, not by address; answers of the gate; how far the tables are behind."""
    await cell.submit("k")
    await cell.submit("k")
    await cell.http.post("/v1/jobs", json={"spec": {}})
    await cell.http.get("/v1/jobs/jaaaaaaaaaaaaa")
    text = (await cell.http.get("/metrics")).text
    assert 'muster_gate_answers_total{asked="submit",outcome="accepted"} 1.0' in text
    assert 'muster_gate_answers_total{asked="submit",outcome="repeated"} 1.0' in text
    assert 'muster_gate_answers_total{asked="submit",outcome="invalid"} 1.0' in text
    assert 'muster_http_requests_total{method="POST",route="/v1/jobs",status="201"} 2.0' in text
    assert 'route="/v1/jobs/{job_id}"' in text
    assert "jaaaaaaaaaaaaa" not in text
    assert "muster_projection_lag_events" in text


async def test_every_schema_is_there_and_describes_what_is_sent(cell: Cell) -> None:
    """By the address that each event names in `dataschema`."""
    for cls in TYPES:
        schema = await cell.get(f"/schemas/{type_of(cls)}.json")
        Draft202012Validator.check_schema(schema)
    assert (await cell.get("/schemas/job_spec.json"))["properties"]["gpus"]
    assert (await cell.http.get("/schemas/nothing.json")).status_code == 404


async def test_the_openapi_document_names_every_field(cell: Cell) -> None:
    """It is what clients are made from; errors are in it too."""
    document = (await cell.http.get("/openapi.json")).json()
    assert set(document["paths"]) >= {
        "/v1/jobs", "/v1/jobs:batch", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}:cancel", "/v1/jobs/{job_id}/timeline",
        "/v1/jobs/{job_id}/why", "/v1/jobs/{job_id}/logs", "/v1/nodes", "/v1/queues", "/v1/events", "/healthz",
        "/readyz", "/metrics", "/schemas/{name}.json",
    }  # fmt: skip
    job = document["components"]["schemas"]["Job"]
    assert set(job["properties"]) >= {"job_id", "state", "reason", "gpus", "exit_code", "position"}
    assert set(document["paths"]["/v1/jobs"]["post"]["responses"]) >= {"201", "4XX", "5XX"}
    bodies = ("SubmitBody", "GrantBody", "AdjustBody", "WebhookBody", "WebhookChange", "ReplayBody")
    assert [name for name in bodies if not document["components"]["schemas"][name].get("examples")] == []
    assert document["paths"]["/v1/webhooks"]["get"]["summary"] == "List Webhooks"
    assert (await cell.http.get("/docs")).status_code == 200


@pytest.mark.slow
async def test_without_postgres_jobs_are_taken_and_reads_say_why_not(
    nats_server: EmbeddedNats, nats_connection: Connection, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A server that is killed takes nothing with it but reading; once it is back, all that was submitted shows."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("own"))
    await server.start()
    await server.create_database("own")
    try:
        async with open_cell(nats_server, nats_connection, server.dsn_of("own")) as cell:
            await cell.get("/v1/jobs", min_position=(await cell.submit("before"))["position"])
            server.kill()
            await server.wait()
            answer = await cell.submit("meanwhile")
            for path in ("/v1/jobs", f"/v1/jobs/{answer['job_id']}", "/v1/nodes", "/v1/queues"):
                response = await cell.http.get(path)
                assert (response.status_code, response.json()["code"]) == (503, "tables_away"), response.text
                assert response.headers["Retry-After"] == "1"
            assert (await cell.http.get(f"/v1/jobs/{answer['job_id']}/logs")).json()["lines"] == []
            assert (await cell.http.post(f"/v1/jobs/{answer['job_id']}:cancel")).status_code == 200
            ready = (await cell.http.get("/readyz")).json()
            assert not ready["checks"]["postgres"]["ok"]
            assert (await cell.http.get("/metrics")).status_code == 200
            await server.start()
            job = await cell.get(f"/v1/jobs/{answer['job_id']}", min_position=answer["position"])
            assert job["key"] == "meanwhile"
    finally:
        await server.stop()


@pytest.mark.slow
async def test_without_nats_reads_go_on(cell: Cell) -> None:
    """What was shown can still be read; a submission says that nothing was written."""
    answer = await cell.submit("before")
    await cell.get("/v1/jobs", min_position=answer["position"])
    cell.nats.kill()
    await cell.nats.wait()
    job = await cell.get(f"/v1/jobs/{answer['job_id']}")
    assert (job["key"], job["spec"]) == ("before", None)
    refused = await cell.http.post("/v1/jobs", json={"key": "meanwhile", "spec": SPEC})
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    assert (await cell.http.get("/v1/events")).json()["code"] == "log_away"
    assert (await cell.http.get(f"/v1/jobs/{answer['job_id']}/timeline")).json()["code"] == "log_away"
    await cell.nats.start()
    again = await cell.http.post("/v1/jobs", json={"key": "meanwhile", "spec": SPEC})
    assert again.status_code == 201, again.text


async def test_the_documentation_needs_no_other_machine(cell: Cell) -> None:
    """Its scripts come from here, and the bare address leads to it."""
    page = await cell.http.get("/", follow_redirects=True)

    assert page.url.path == "/docs"
    assert "http" not in "".join(re.findall(r'(?:src|href)="([^"]+)"', page.text))
    for part in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        assert (await cell.http.get(part)).status_code == 200, part


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/jobs?state=bogus", None, "state: must be 'queued', 'admitted'"),
        ("/v1/jobs", b"[1]", "the body: must be a JSON object"),
        ("/v1/jobs", b"{nope", "the body is no JSON: "),
        ("/v1/jobs?limit=0", None, "limit: must be greater than or equal to 1, not '0'"),
    ],
)
async def test_a_wrong_request_is_told_in_words(cell: Cell, path: str, body: bytes | None, detail: str) -> None:
    """Not in those of the library that noticed."""
    headers = {"Content-Type": "application/json"}
    answer = await cell.http.request("GET" if body is None else "POST", path, content=body, headers=headers)

    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail)


async def test_tables_ahead_of_the_log_are_of_no_use(cell: Cell, postgres_dsn: str) -> None:
    """They show another log, or one that was cut: not ready, and the way out is named."""
    await cell.get("/v1/jobs", min_position=(await cell.submit())["position"])
    pool = await create_pool(postgres_dsn, name="test", size_max=1)
    try:
        await pool.execute("UPDATE live.projection_position SET position = position + 1000")
    finally:
        await pool.close()

    checks = (await cell.http.get("/readyz")).json()["checks"]

    assert not checks["projector"]["ok"]
    assert "muster rebuild" in checks["projector"]["detail"]
