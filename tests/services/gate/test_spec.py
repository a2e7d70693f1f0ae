"""What people may type to describe a job, what it means, and what they are told when it is wrong."""

from typing import Any

import pytest

from events.ask import RefusalCode, Refused
from events.base import TeamId
from events.job import Checkpoint, Domain, JobSpec, OnLost, Priority, Ranks, Topology
from services.gate.spec import SPEC_BYTES_MAX, checked, request_hash

TEAM = TeamId("research")
LEAST: dict[str, Any] = {"name": "train", "command": "python train.py", "gpus": 8}


def meant(**changed: Any) -> JobSpec:
    """The spec that `LEAST` with changes means."""
    spec = checked(LEAST | changed, TEAM)
    assert isinstance(spec, JobSpec), spec
    return spec


def refused(raw: object) -> Refused:
    """Why `raw` is no spec."""
    answer = checked(raw, TEAM)
    assert isinstance(answer, Refused), answer
    return answer


def test_the_least_is_enough() -> None:
    """A name, a command and a number of GPUs; all else has a default."""
    assert meant() == JobSpec(name="train", command=("python", "train.py"), gpus=8)


def test_everything_can_be_said() -> None:
    """Every field, in its friendly form, arrives in the spec that the log keeps."""
    spec = meant(
        team="research",
        command=["torchrun", "train.py", "--lr", 0.1, "--steps", 5],
        gpus=16,
        nodes=2,
        gpu_types="h100",
        env={"EPOCHS": 3, "MODE": "fast"},
        workdir="/data",
        priority="high",
        ranks="per_node",
        max_runtime="1h30m",
        stop_grace="20s",
        preemptible=False,
        checkpoint={"signal": "usr1", "grace": "2m", "directory": "/ckpt"},
        retries_application=2,
        retries_infrastructure=5,
        on_lost="wait",
        min_gpus=8,
        topology={"within": "spine", "required": False},
        labels={"fabric": "ib", "generation": 3},
        tolerates=["maintenance", "slow"],
        account="vision-2026",
        start_within="20m",
    )
    assert spec == JobSpec(
        name="train",
        command=("torchrun", "train.py", "--lr", "0.1", "--steps", "5"),
        gpus=16,
        nodes=2,
        gpus_per_node=8,
        gpu_types=("h100",),
        env={"EPOCHS": "3", "MODE": "fast"},
        workdir="/data",
        priority=Priority.HIGH,
        ranks=Ranks.PER_NODE,
        max_runtime_s=5_400,
        stop_grace_s=20,
        preemptible=False,
        checkpoint=Checkpoint(signal="SIGUSR1", grace_s=120, directory="/ckpt"),
        retries_application=2,
        retries_infrastructure=5,
        on_lost=OnLost.WAIT,
        min_gpus=8,
        topology=Topology(within=Domain.SPINE, required=False),
        labels={"fabric": "ib", "generation": "3"},
        tolerates=("maintenance", "slow"),
        account="vision-2026",
        start_within_s=1_200,
    )


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [(90, 90), ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5_400), ("2d", 172_800), ("1h 5s", 3_605), (0, 0)],
)
def test_times_may_be_typed_as_people_say_them(typed: object, seconds: int) -> None:
    """Numbers are seconds; d, h, m and s may follow, in this order."""
    assert meant(max_runtime=typed).max_runtime_s == seconds
    assert meant(max_runtime_s=seconds).max_runtime_s == seconds


@pytest.mark.parametrize(
    ("shape", "gpus", "nodes", "each"),
    [
        ({"gpus": 8}, 8, 0, 0),
        ({"gpus": 8, "nodes": 2}, 8, 2, 4),
        ({"gpus": 8, "gpus_per_node": 2}, 8, 4, 2),
        ({"gpus": None, "nodes": 3, "gpus_per_node": 2}, 6, 3, 2),
        ({"gpus": 6, "nodes": 3, "gpus_per_node": 2}, 6, 3, 2),
        ({"gpus": 100_000}, 100_000, 0, 0),
    ],
)
def test_two_numbers_of_a_shape_give_the_third(shape: dict[str, Any], gpus: int, nodes: int, each: int) -> None:
    """Gang, nodes and GPUs on each: what is left out is worked out."""
    spec = meant(**shape)
    assert (spec.gpus, spec.nodes, spec.gpus_per_node) == (gpus, nodes, each)


@pytest.mark.parametrize(
    ("changed", "told", "hint"),
    [
        ({"gpu": 8}, "gpu: there is no such field", "did you mean gpus?"),
        ({"commnd": "x"}, "commnd: there is no such field", "did you mean command?"),
        ({"time_limit": 5}, "time_limit: there is no such field", "did you mean max_runtime?"),
        ({"zzz": 5}, "zzz: there is no such field", "the fields are name, team, command"),
        ({"checkpoint": {"grce": 3}}, "checkpoint.grce: there is no such field", "did you mean grace?"),
        ({"gpus": 0}, "gpus: must be 1 or more, not 0", ""),
        ({"gpus": -4}, "gpus: must be 1 or more, not -4", ""),
        ({"gpus": 100_001}, "gpus: must be 100000 or less, not 100001", ""),
        ({"gpus": 10**30}, "gpus: must be", ""),
        ({"gpus": True}, "gpus: must be a whole number, not true", ""),
        ({"gpus": 1.5}, "gpus: must be a whole number, not 1.5", ""),
        ({"gpus": "8"}, "gpus: must be a whole number, not '8'", "write 8 without quotes"),
        ({"gpus": None}, "gpus: is missing", "for example gpus: 8"),
        ({"nodes": 3}, "nodes: 8 GPUs cannot be divided evenly by 3", ""),
        ({"nodes": 2, "gpus_per_node": 8}, "gpus: is 8, but 2 nodes of 8 GPUs are 16", "leave one out"),
        ({"gpus": None, "nodes": 100_000, "gpus_per_node": 8}, "are 800000, 100000 is the most", ""),
        ({"command": ""}, "command: is empty", 'for example ["python", "train.py"]'),
        ({"command": []}, "command: is empty", ""),
        ({"command": ["", "x"]}, "command: is empty", ""),
        ({"command": [None]}, "command: has null, which is not text", ""),
        ({"command": "echo 'a"}, "cannot be split into words", "give a list of words"),
        ({"command": 7}, "command: must be text or a list of words, not 7", ""),
        ({"command": ["a\0b"]}, "command: has a NUL character", ""),
        ({"command": "x" * 40_000}, "command: has 40000 bytes, 32768 is the most", "put the script into a file"),
        ({"command": ["x"] * 1_001}, "command: has 1001 words, 1000 is the most", ""),
        ({"env": {"A": True}}, "env: A is true, which is not text", 'put quotes around it: A: "…"'),
        ({"env": {"1A": "x"}}, "env: has a variable named '1A'", ""),
        ({"env": ["A=1"]}, "env: must be a mapping of names to text", ""),
        ({"env": {f"V{n}": "" for n in range(501)}}, "env: has 501 variables, 500 is the most", ""),
        ({"env": {"A": "x" * 33_000}}, "env: has 33001 bytes, 32768 is the most", ""),
        ({"max_runtime": "soon"}, "max_runtime: must be a time such as 90, 90s, 10m, 1h30m or 2d, not 'soon'", ""),
        ({"max_runtime": -1}, "max_runtime: must be 0 or more, not -1", ""),
        ({"max_runtime": ""}, "max_runtime: must be a time", ""),
        ({"stop_grace": "2h"}, "stop_grace: must be 3600 or less", ""),
        ({"priority": "hihg"}, "priority: must be one of low, normal, high, urgent, not 'hihg'", "did you mean high?"),
        ({"ranks": "per_cpu"}, "ranks: must be one of per_gpu, per_node", "did you mean per_gpu?"),
        ({"workdir": "runs"}, "workdir: 'runs' is relative", "give it from / on"),
        ({"preemptible": "yes"}, "preemptible: must be true or false, not 'yes'", ""),
        ({"checkpoint": {"signal": "KILL"}}, "checkpoint.signal: must be one of SIGUSR2", ""),
        ({"gpu_types": [1]}, "gpu_types: has 1", ""),
        ({"account": "Vision"}, "account: 'Vision' has capital letters", "for example vision"),
        ({"account": 7}, "account: must be text, not 7", 'put quotes around it: "7"'),
        ({"purse": "vision"}, "purse: there is no such field", "did you mean account?"),
        ({"retries_application": -1}, "retries_application: must be 0 or more, not -1", ""),
    ],
)
def test_what_is_wrong_is_told_with_field_value_and_hint(changed: dict[str, Any], told: str, hint: str) -> None:
    """The message names the field and what was given, the hint what was probably meant."""
    answer = refused(LEAST | changed)
    assert answer.code is RefusalCode.INVALID
    assert told in answer.message
    assert hint in answer.hint


@pytest.mark.parametrize(
    ("name", "told", "hint"),
    [
        ("a.b", "has a dot", "a-b"),
        ("a*", "has a wildcard", "a"),
        ("a>", "has a wildcard", "a"),
        ("my job", "has a space", "my-job"),
        ("größe", "has 'ö', which is not ASCII", "groe"),
        ("Train", "has capital letters", "train"),
        ("-a", "begins or ends with a dash", "a"),
        ("a_b", "has '_'", "a-b"),
        ("", "is empty", ""),
        ("x" * 41, "has 41 characters", "x" * 40),
    ],
)
def test_a_name_that_cannot_be_a_subject_is_told_why(name: str, told: str, hint: str) -> None:
    """Dots, wildcards, spaces, capitals and other scripts are named, and a legal name is offered."""
    answer = refused(LEAST | {"name": name})
    assert answer.message.startswith("name: ")
    assert told in answer.message
    assert hint in answer.hint


def test_all_that_is_missing_is_told_at_once() -> None:
    """One answer, not one a try."""
    assert refused({}).message == "name: is missing; command: is missing"
    assert refused([]).message.startswith("spec: must be a mapping")


def test_no_more_is_told_than_one_can_read() -> None:
    """Five problems, and how many more there are."""
    answer = refused(LEAST | {f"x{n}": 1 for n in range(20)})
    assert answer.message.count(";") == 5
    assert answer.message.endswith("and 15 more")


def test_a_large_spec_is_refused_whole() -> None:
    """64 KiB are the most, whatever fills them; so is a value that is no JSON."""
    answer = refused(LEAST | {"junk": "x" * SPEC_BYTES_MAX})
    assert answer.code is RefusalCode.TOO_LARGE
    assert refused(LEAST | {"workdir": "\ud800"}).code is RefusalCode.INVALID


def test_a_spec_cannot_name_another_team() -> None:
    """Who asks is said by the connection; the spec may only repeat it."""
    answer = refused(LEAST | {"team": "sales"})
    assert answer.code is RefusalCode.FORBIDDEN
    assert "'sales'" in answer.message


def test_an_account_that_nobody_named_is_none() -> None:
    """The first that lists its queue pays. Which may be named, the accounts of the moment say: none is looked up here."""
    assert meant(account="").account == meant().account == ""
    assert request_hash(meant(account="")) == request_hash(meant())
    assert meant(account="not-there-yet").account == "not-there-yet"


def test_the_hash_tells_specs_apart_and_not_their_spelling() -> None:
    """Order and friendly forms do not count, values do."""
    spec = meant(env={"A": "1", "B": "2"}, max_runtime="1m")
    assert request_hash(spec) == request_hash(meant(env={"B": "2", "A": 1}, max_runtime=60, priority="normal"))
    assert request_hash(spec) != request_hash(meant(env={"A": "1", "B": "3"}, max_runtime="1m"))


@pytest.mark.parametrize("name", ["RANK", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "MUSTER_CHECKPOINT_DIR"])
def test_what_every_rank_gets_of_its_own_cannot_be_set(name: str) -> None:
    """It would be overridden without a word."""
    answer = checked({"name": "a", "gpus": 1, "command": ["true"], "env": {name: "1"}}, TeamId("red"))

    assert isinstance(answer, Refused)
    assert name in answer.message
