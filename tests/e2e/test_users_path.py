"""What a user does with a cluster, through the muster command alone."""

import json
from typing import Any

import pytest

from tests.e2e.user import User, eventually

pytestmark = [pytest.mark.slow]

HELLO: dict[str, Any] = {"name": "hello", "gpus": 2, "command": ["sh", "-c", "echo rank $RANK of $WORLD_SIZE"]}


def test_a_gang_runs_whole_and_everything_can_be_seen(user: User) -> None:
    """Submit, wait, look: 16 ranks on two nodes, their output, the timeline, who has what."""
    job_id = user.submit({**HELLO, "name": "gang", "gpus": 16}, "--team", "blue")
    assert user.muster("wait", job_id).code == 0

    lines = user.ok("logs", job_id).out.splitlines()
    assert sorted(lines) == sorted(f"{rank}: rank {rank} of 16" for rank in range(16))
    assert user.ok("logs", job_id, "--rank", "3").out == "rank 3 of 16\n"
    assert len(user.ok("logs", job_id, "--tail", "5").out.splitlines()) == 5

    job = user.ok("job", job_id, "--json").document
    assert (job["state"], job["team"], job["gpus"], job["node_ids"]) == ("succeeded", "blue", 16, ["node-1", "node-2"])
    types = [event["type"] for event in job["timeline"]]
    for earlier, later in (("submitted", "admitted"), ("admitted", "placed"), ("placed", "run_started")):
        assert types.index(f"musterbook.job.{earlier}.v1") < types.index(f"musterbook.job.{later}.v1")
    assert types[-1] == "musterbook.job.succeeded.v1"
    assert "job.placed" in user.ok("job", job_id).out

    assert [job["job_id"] for job in user.ok("jobs", "--team", "blue", "--json").documents] == [job_id]
    nodes = user.ok("nodes", "--json").documents
    assert [(node["node_id"], node["gpus_total"], node["gpus_free"]) for node in nodes] == [
        ("node-1", 8, 8),
        ("node-2", 8, 8),
    ]
    assert any(queue["team"] == "blue" and queue["jobs_ended"] == 1 for queue in user.ok("queues", "--json").documents)
    events = user.ok("events", "--job", job_id, "--json").documents
    assert [event["position"] for event in events] == [event["position"] for event in job["timeline"]]


def test_a_gang_too_large_waits_with_a_reason_and_can_be_cancelled(user: User) -> None:
    """It holds nothing; `why` has the numbers; waiting for it times out; cancelled, it has ended otherwise."""
    job_id = user.submit({**HELLO, "name": "large", "gpus": 64})
    eventually(lambda: user.ok("why", job_id, "--json").document["code"] == "exceeds_cluster", "there is a reason")
    why = user.ok("why", job_id, "--json").document
    assert (why["need"]["gpus"], why["have"]["gpus_total"]) == (64, 16)
    assert "64" in user.ok("why", job_id).out

    waited = user.muster("wait", job_id, "--timeout", "0.5")
    assert (waited.code, "goes on" in waited.err) == (5, True)
    assert all(node["gpus_used"] == 0 for node in user.ok("nodes", "--json").documents)

    user.ok("cancel", job_id, "--reason", "changed my mind")
    assert user.muster("wait", job_id).code == 6
    job = user.ok("job", job_id, "--json").document
    assert (job["state"], job["cancel_reason"]) == ("cancelled", "changed my mind")
    assert "had already ended" in user.ok("cancel", job_id).err


def test_a_dry_run_says_what_becomes_of_a_job_and_submits_none(user: User) -> None:
    """The scheduler's own answer; a bad spec is refused as it would be."""
    before = len(user.ok("jobs", "--all", "--json").documents)
    would = user.ok("submit", "-", "--dry-run", "--json", stdin=json.dumps({**HELLO, "gpus": 16})).document
    assert (would["outcome"], would["nodes"], would["borrowed"]) == ("starts", {"node-1": 8, "node-2": 8}, 0)
    assert "would start at once" in user.ok("run", "--dry-run", "--gpus", "2", "--", "true").out
    waits = user.ok("submit", "-", "--dry-run", "--json", stdin=json.dumps({**HELLO, "gpus": 64})).document
    assert (waits["outcome"], waits["code"], waits["why"]["need"]["gpus"]) == ("waits", "exceeds_cluster", 64)
    refused = user.muster("submit", "-", "--dry-run", stdin=json.dumps({**HELLO, "gpus": 0}))
    assert (refused.code, "gpus: must be 1 or more" in refused.err) == (1, True)
    assert len(user.ok("jobs", "--all", "--json").documents) == before


def test_why_answers_for_the_past(user: User) -> None:
    """Also of a job that has ended: as it waited, ran, and was over."""
    job_id = user.submit({**HELLO, "name": "past"})
    assert user.muster("wait", job_id).code == 0
    timeline = user.ok("job", job_id, "--json").document["timeline"]
    at = {event["type"].split(".")[2]: event["position"] for event in timeline}
    assert user.ok("why", job_id, "--at", str(at["submitted"]), "--json").document["state"] == "queued"
    told = user.ok("why", job_id, "--at", f"1:{at['run_started'] & 0xFFFFFFFFFF}").out
    assert told.startswith(f"{job_id} was running (at ")
    assert user.ok("why", job_id, "--at", "0s ago", "--json").document["state"] == "succeeded"
    early = user.muster("why", job_id, "--at", "1d ago")
    assert (early.code, "before the first record" in early.err) == (1, True)


def test_a_running_job_is_cancelled_and_its_gpus_return(user: User) -> None:
    """Its processes end, its GPUs are free."""
    job_id = user.submit({**HELLO, "name": "long", "command": ["sleep", "600"], "stop_grace": 1})
    eventually(lambda: user.state(job_id) == "running", "it runs")
    user.ok("cancel", job_id)
    assert user.muster("wait", job_id, "--timeout", "20").code == 6
    assert sum(node["gpus_free"] for node in user.ok("nodes", "--json").documents) == 16


def test_the_jobs_exit_code_is_passed_on(user: User) -> None:
    """By `submit --wait`, `wait`, and `run`, which also shows the output and nothing else on stdout."""
    spec = json.dumps({**HELLO, "gpus": 1, "command": ["sh", "-c", "exit 37"]})
    said = user.muster("submit", "-", "--wait", stdin=spec)
    job_id = said.out.strip()
    assert said.code == 37
    assert "exit code 37" in said.err
    assert user.muster("wait", job_id).code == 37

    said = user.muster("run", "--gpus", "2", "--", "sh", "-c", "echo out $RANK; test $RANK = 0 || exit 3")
    assert said.code == 3
    assert min(said.out.splitlines()) == "0: out 0"
    said = user.muster("run", "--", "sh", "-c", "kill -9 $$")
    assert said.code == 137
    said = user.muster("run", "--", "pwd")
    assert (said.code, said.out) == (0, f"0: {user.folder}\n")


def test_the_same_key_is_the_same_job(user: User) -> None:
    """And with another spec a conflict that names the job; nothing is run twice."""
    first = user.ok("submit", "-", "--key", "once", stdin=json.dumps(HELLO))
    again = user.ok("submit", "-", "--key", "once", stdin=json.dumps(HELLO))
    assert again.out == first.out
    assert "same job" in again.err
    other = user.muster("submit", "-", "--key", "once", stdin=json.dumps({**HELLO, "gpus": 4}))
    assert (other.code, other.out) == (1, "")
    assert first.out.strip() in other.err
    assert "[conflict]" in other.err


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("name: a\ngpu: 1\ncommand: x\n", "job.yaml:2: gpu: there is no such field"),
        ("name: a.b\ngpus: 1\ncommand: x\n", "job.yaml:1: name:"),
        ("name: a\ngpus: 1\n", "command: is missing"),
    ],
)
def test_a_wrong_spec_is_refused_with_its_line(user: User, spec: str, says: str) -> None:
    """On stderr, with exit code 1 and nothing on stdout."""
    (user.folder / "job.yaml").write_text(spec)
    said = user.muster("submit", "job.yaml")
    assert (said.code, said.out) == (1, "")
    assert says in said.err


def test_exit_codes_tell_what_went_wrong(user: User) -> None:
    """Not found, unreachable, wrong usage."""
    for command in ("job", "why", "wait", "cancel", "logs"):
        said = user.muster(command, "jaaaaaaaaaaaaa")
        assert (said.code, said.out) == (3, ""), (command, said)
    said = user.muster("jobs", "--api-url", "http://127.0.0.1:9")
    assert (said.code, "muster up" in said.err) == (4, True)
    assert user.muster("jobs", "--limit", "many").code == 2
    assert user.muster("submit", "no-such-file.yaml").code == 2


def test_a_job_can_be_followed(user: User) -> None:
    """`submit --follow` shows the output as it comes and exits as the job does; the id is on stderr."""
    spec = {**HELLO, "gpus": 1, "command": ["sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.2; done"]}
    said = user.muster("submit", "-", "--follow", stdin=json.dumps(spec))
    assert (said.code, said.out.splitlines()) == (0, ["0: line 1", "0: line 2", "0: line 3"])
    assert "succeeded" in said.err


def test_tables_and_log_are_as_they_should_be(user: User) -> None:
    """After all of the above: tables equal a rebuild, the log breaks no law, and a rebuild changes nothing that is seen."""
    before = user.ok("jobs", "--all", "--json").out
    assert user.ok("verify", "--json").document["findings"] == []
    user.ok("rebuild")
    assert user.ok("jobs", "--all", "--json").out == before
    assert "same as the log says" in user.ok("verify").out


def test_plain_output_has_no_tabs_and_whole_ids(user: User) -> None:
    """What is piped can be cut by columns."""
    out = user.ok("jobs").out
    assert "\t" not in out
    assert "\x1b" not in out
    ids = {job["job_id"] for job in user.ok("jobs", "--json").documents}
    assert ids == {line.split()[0] for line in out.splitlines()[1:]}


def test_two_clusters_never_share_a_folder(user: User) -> None:
    """The second `muster up` says who has it and what to do; two in folders of their own run side by side."""
    said = user.muster("up", "--port", "0")
    assert said.code == 1
    assert "in use by process" in said.err
    assert "another data directory" in said.err
