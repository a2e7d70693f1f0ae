"""Calling the API over a network that drops, delays and refuses."""

import pytest

from services.cli.client import Client, SentEvent, Server, refusal, sent_events
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import DROP, Network


def test_a_try_without_an_answer_is_made_again_with_the_same_body(network: Network) -> None:
    """So that the same idempotency key goes out: it is the same job, whether the first try arrived or not."""
    network.answers.extend([(DROP, None), (503, {"code": "unknown"}), (201, {"job_id": "j1"})])
    with Client(Server(network.url, "the test")) as client:
        assert client.post("/jobs", {"key": "k"}) == {"job_id": "j1"}
    assert network.asked == [("/v1/jobs", {"key": "k"})] * 3


def test_a_refusal_is_not_asked_again(network: Network) -> None:
    """And carries reason, stable code and hint."""
    network.answers.append((422, {"code": "invalid", "detail": "gpus: must be 1 or more", "hint": "say 1"}))
    with Client(Server(network.url, "the test")) as client, pytest.raises(Failure) as failed:
        client.post("/jobs", {}, thing="job.yaml")
    assert str(failed.value) == "job.yaml: gpus: must be 1 or more [invalid]"
    assert (failed.value.hint, failed.value.code) == ("say 1", ExitCode.REFUSED)
    assert len(network.asked) == 1


def test_what_is_not_found_is_told_with_what_there_is(network: Network) -> None:
    """The server's own hint is for programs: it speaks of what the command has no option for."""
    said = {"code": "not_found", "detail": "job_id: there is no job 'jx'", "hint": "pass min_position"}
    network.answers.append((404, said))
    with Client(Server(network.url, "the test")) as client, pytest.raises(Failure) as failed:
        client.get("/jobs/jx", thing="jx")
    assert (failed.value.hint, failed.value.code) == ("muster jobs --all lists the jobs", ExitCode.NOT_FOUND)


def test_what_is_old_is_said_to_be_once(network: Network, capsys: pytest.CaptureFixture[str]) -> None:
    """While the tables are behind; a moment is nothing to speak of."""
    network.answers.append((200, {"jobs": []}))
    with Client(Server(network.url, "the test")) as client:
        for behind in ("1.5", "42.4", "43.0"):
            network.says["Muster-Behind"] = behind
            client.get("/jobs")
    assert capsys.readouterr().err == (
        "muster: what follows is 42 s old: the tables are behind the log; deciding goes on\n"
    )


def test_tries_end(network: Network) -> None:
    """A server that cannot serve is given up after a few."""
    network.answers.append((503, {"code": "busy", "detail": "too much waits"}))
    with Client(Server(network.url, "the test")) as client, pytest.raises(Failure, match="too much waits") as failed:
        client.get("/jobs")
    assert failed.value.code is ExitCode.UNREACHABLE
    assert len(network.asked) == 5


def test_what_is_no_api_of_ours_is_named(network: Network) -> None:
    """Another server on the port that was meant."""
    with Client(Server(network.url, "the test")) as client:
        for status, body in ((200, b"<html>"), (404, b"<html>"), (404, {"error": "no such page"}), (200, [])):
            network.answers[:] = [(status, body)]
            with pytest.raises(Failure, match="not that of a muster API") as failed:
                client.get("/jobs")
            assert failed.value.code is ExitCode.UNREACHABLE


def test_nobody_there_says_how_to_start_a_cluster() -> None:
    """With the address, how it is known, and the exit code for it."""
    with Client(Server("http://127.0.0.1:9", "MUSTER_API_URL")) as client, pytest.raises(Failure) as failed:
        client.get("/jobs")
    assert "http://127.0.0.1:9: no answer" in str(failed.value)
    assert "address from MUSTER_API_URL" in str(failed.value)
    assert "muster up" in failed.value.hint
    assert failed.value.code is ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ExitCode.REFUSED), (403, ExitCode.REFUSED), (404, ExitCode.NOT_FOUND), (409, ExitCode.REFUSED),
        (413, ExitCode.REFUSED), (422, ExitCode.REFUSED), (503, ExitCode.UNREACHABLE), (504, ExitCode.TIMEOUT),
    ],
)  # fmt: skip
def test_every_status_has_its_exit_code(status: int, code: ExitCode) -> None:
    """Also without a document."""
    assert refusal(status, {}, "it").code is code


def test_a_conflict_names_the_job_that_has_the_key() -> None:
    """Where the sentence does not."""
    document = {"code": "conflict", "detail": "the key has another spec", "job_id": "jx"}
    assert str(refusal(409, document, "job.yaml")) == "job.yaml: the key has another spec (job jx) [conflict]"


def test_server_sent_events_are_read_as_the_standard_says() -> None:
    """Comments and unknown fields are passed over, data over lines is joined, an event without its end is none."""
    lines = [
        ": hi",
        "",
        "id: 1",
        "event: line",
        "data: a",
        "data: b",
        "",
        "retry: 5",
        "id: 2",
        "data:c",
        "",
        "data: cut",
    ]
    assert list(sent_events(iter(lines))) == [SentEvent("1", "line", "a\nb"), SentEvent("2", "", "c")]
