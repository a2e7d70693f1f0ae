"""Job specs as people write them."""

import io
import sys
from pathlib import Path

import pytest

from services.cli.failure import ExitCode, Failure
from services.cli.specfile import SPEC_MAX_BYTES, name_of, parse_pairs, read_document, read_spec


def written(folder: Path, text: str) -> str:
    """The path of a spec file with that text."""
    file = folder / "job.yaml"
    file.write_text(text)
    return str(file)


def test_a_relative_workdir_is_meant_from_the_file(tmp_path: Path) -> None:
    """Not from where the command is called; an absolute one stays."""
    spec = read_spec(written(tmp_path, "name: a\nworkdir: src/x\n"))
    assert spec.body == {"name": "a", "workdir": str(tmp_path / "src/x")}
    assert read_spec(written(tmp_path, "workdir: /data\n")).body == {"workdir": "/data"}


def test_stdin_is_a_spec_and_variables_are_not_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads stdin; a relative workdir is meant from this folder; `${HOME}` is the job's to expand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"command: [echo, '${HOME}']\nworkdir: .\n")))
    spec = read_spec("-")
    assert spec.body == {"command": ["echo", "${HOME}"], "workdir": str(tmp_path)}
    assert spec.origin == "stdin"


def test_a_time_is_text_as_it_was_typed(tmp_path: Path) -> None:
    """It travels as JSON, which has no times; numbers are numbers all the same."""
    file = tmp_path / "prices.yaml"
    file.write_text("{from: 2027-01-01T00:00:00Z, day: 2027-01-01, month: 2026-10, price: 2.5, gpus: 8}")
    assert read_document(str(file), "a price file", "").body == {
        "from": "2027-01-01T00:00:00Z", "day": "2027-01-01", "month": "2026-10", "price": 2.5, "gpus": 8
    }  # fmt: skip


def test_a_refusal_points_at_the_line_of_its_field(tmp_path: Path) -> None:
    """The field that the message begins with; for a part that is not in the file, the nearest one around it."""
    file = written(tmp_path, "name: a\nenv:\n  HOME: 1\n  X: 2\ncheckpoint:\n  grace: -1\n")
    spec = read_spec(file)
    assert spec.where("checkpoint.grace: must be 0 or more, not -1") == f"{file}:6"
    assert spec.where("env: X is true, which is not text") == f"{file}:2"
    assert spec.where("checkpoint.signal: must be one of …") == f"{file}:5"
    assert spec.where("command: is missing") == file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\n  gpus: 1\n", "job.yaml:2: not YAML"),
        ("name: a\ngpus: 1\ngpus: 2\n", "job.yaml:3: gpus is given twice"),
        ("env:\n  A: x\n  A: y\n", "job.yaml:3: env.A is given twice"),
        ("- name: a\n", "is a mapping, this is a list"),
        ("", "is a mapping, this is empty"),
        ("a: &a [1]\nb: !!python/object:os.system {}\n", "not YAML"),
        ("[" * 5000, "not"),
        ("a: &a [*a]\n", "aliases followed"),
    ],
)
def test_what_is_no_spec_is_wrong_usage_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    """Nothing is sent for it."""
    with pytest.raises(Failure) as failed:
        read_spec(written(tmp_path, text))
    assert says in str(failed.value)
    assert failed.value.code is ExitCode.USAGE


def test_aliases_that_mean_gigabytes_are_refused(tmp_path: Path) -> None:
    """A file of a page whose aliases multiply: refused at once, not expanded."""
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 10))
    with pytest.raises(Failure, match="aliases followed"):
        read_spec(written(tmp_path, "l0: &l0 [x]\n" + levels))


def test_a_file_larger_than_any_spec_is_refused_unread(tmp_path: Path) -> None:
    """With the limit; likewise one that is no text, or not there."""
    with pytest.raises(Failure, match="at most 256 KiB"):
        read_spec(written(tmp_path, "#" * (SPEC_MAX_BYTES + 1)))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Failure, match="not UTF-8"):
        read_spec(str(tmp_path / "binary"))
    with pytest.raises(Failure, match="cannot be read: No such file"):
        read_spec(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python3", "train.py", "--lr", "1"], "train"),
        (["/usr/bin/env"], "env"),
        (["sh", "-c", "echo hi"], "sh"),
        (["./My_Script.sh"], "my-script"),
        (["日本"], "job"),
        (["x" * 90], "x" * 40),
    ],
)
def test_a_command_gives_a_legal_name(command: list[str], name: str) -> None:
    """Of the script where there is one, else of the program."""
    assert name_of(command) == name


def test_env_options_are_pairs() -> None:
    """The value may hold more of `=`; what has none is wrong usage."""
    assert parse_pairs("--env", ["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    with pytest.raises(Failure, match="is not NAME=VALUE"):
        parse_pairs("--env", ["A"])
