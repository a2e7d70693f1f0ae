"""Submitting: one key for all tries, a refusal with its line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import DROP, Network

ACCEPTED = {"job_id": "jx", "team": "default", "key": "k", "position": 7, "repeated": False}


def test_every_try_has_the_key_that_was_made_before_the_first(network: Network, tmp_path: Path) -> None:
    """The answer to the first try is lost: the second is the same ask, so it can be no second job."""
    (tmp_path / "job.yaml").write_text("name: a\ngpus: 1\ncommand: [x]\n")
    network.answers.extend([(DROP, None), (201, ACCEPTED)])
    done = CliRunner().invoke(app, ["submit", str(tmp_path / "job.yaml"), "--api-url", network.url])
    assert (done.exit_code, done.stdout) == (0, "jx\n")
    (_, first), (_, second) = network.asked
    assert first == second
    assert len(first["key"]) == 36


def test_json_is_the_answer(network: Network) -> None:
    """And `run` sends what its options say, in this folder."""
    network.answers.append((201, ACCEPTED))
    argv = [
        "run",
        "-d",
        "--json",
        "--gpus",
        "4",
        "--nodes",
        "2",
        "-e",
        "A=1",
        "--api-url",
        network.url,
        "--",
        "x",
        "-v",
    ]
    done = CliRunner().invoke(app, argv)
    assert json.loads(done.stdout) == ACCEPTED
    spec = network.asked[0][1]["spec"]
    assert spec == {
        "name": "x",
        "command": ["x", "-v"],
        "gpus": 4,
        "nodes": 2,
        "env": {"A": "1"},
        "workdir": str(Path.cwd()),
    }


def test_run_says_which_nodes_it_may_go_to(network: Network) -> None:
    """Its options become the fields of a spec; a label without a value goes nowhere."""
    network.answers.append((201, ACCEPTED))
    options = ["--gpus", "16", "--min-gpus", "8", "--within", "rack", "--label", "fabric=ib", "--label", "zone=a"]
    argv = ["run", "-d", *options, "--tolerate", "slow", "--api-url", network.url, "--", "x"]
    assert CliRunner().invoke(app, argv).exit_code == 0
    spec = network.asked[0][1]["spec"]
    wanted = {"min_gpus": 8, "topology": "rack", "labels": {"fabric": "ib", "zone": "a"}, "tolerates": ["slow"]}
    assert wanted.items() <= spec.items()
    done = CliRunner().invoke(app, ["run", "--label", "fabric", "--api-url", network.url, "--", "x"])
    assert str(done.exception) == "--label: 'fabric' is not NAME=VALUE"


def test_a_refusal_names_the_line(network: Network, tmp_path: Path) -> None:
    """Of the field that the sentence begins with."""
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ngpus: 0\n")
    network.answers.append((422, {"code": "invalid", "detail": "gpus: must be 1 or more, not 0"}))
    done = CliRunner().invoke(app, ["submit", str(file), "--api-url", network.url])
    assert isinstance(done.exception, Failure)
    assert str(done.exception) == f"{file}:2: gpus: must be 1 or more, not 0 [invalid]"
    assert done.exception.code is ExitCode.REFUSED


@pytest.mark.parametrize(
    ("state", "exit_code", "code"), [("failed", 9, 9), ("cancelled", None, 6), ("succeeded", 0, 0)]
)
def test_waiting_exits_as_the_job_does(network: Network, state: str, exit_code: int | None, code: int) -> None:
    """The id is on stdout, how it ended on stderr; answers are asked for that know of the submit."""
    ended = {"job_id": "jx", "state": state, "exit_code": exit_code, "message": "", "reason": "", "hold_code": ""}
    network.answers.extend([(201, ACCEPTED), (200, ended)])
    done = CliRunner().invoke(app, ["run", "--wait", "--api-url", network.url, "--", "x"])
    assert (done.exit_code, done.stdout) == (code, "jx\n")
    assert network.asked[1][0] == "/v1/jobs/jx?min_position=7"


def test_an_empty_key_is_no_key(network: Network, tmp_path: Path) -> None:
    """An unset variable in a script would make a new job at each try."""
    (tmp_path / "job.yaml").write_text("name: a\ngpus: 1\ncommand: [x]\n")
    argv = ["submit", str(tmp_path / "job.yaml"), "--key", "", "--api-url", network.url]

    assert CliRunner().invoke(app, argv).exit_code == 2
    assert network.asked == []
