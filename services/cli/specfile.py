"""Job specs and other documents as people write them: YAML or a command line, made into the mapping that the API takes."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from services.cli.failure import ExitCode, Failure

SPEC_MAX_BYTES: Final = 256 << 10  # a spec is a page; whoever needs more keeps it in files that the job reads
NODES_MAX: Final = 20_000  # of the YAML tree, aliases followed: a file of a page can be made to mean gigabytes
STDIN: Final = "-"


class Spec(NamedTuple):
    """A document as typed, and where its fields stand."""

    body: dict[str, Any]
    origin: str  # of messages: the file
    lines: dict[str, int]  # "env.HOME" -> 7

    def where(self, message: str) -> str:
        """The place that a refusal means: `FILE` or `FILE:LINE`, from the field that the message begins with."""
        field = re.match(r"(?:spec\.)?([A-Za-z_][\w.\[\]-]*)", message)
        path = re.sub(r"\[(\d+)\]", r".\1", field[1]).rstrip(".") if field else ""
        while path:
            if path in self.lines:
                return f"{self.origin}:{self.lines[path]}"
            path = path.rpartition(".")[0]
        return self.origin


class Loader(yaml.SafeLoader):
    """YAML in which a time is text, as JSON has it: whoever reads the field knows what it means."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the class above has it
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_spec(file: str) -> Spec:
    """The spec in a YAML file, or on stdin for `-`. A relative `workdir` is meant from the file's folder.

    Raises: `Failure`, with the line where there is one.
    """
    spec = read_document(file, "a job spec", EXAMPLE_HINT)
    folder = Path.cwd() if file == STDIN else Path(file).resolve().parent
    if isinstance(spec.body.get("workdir"), str) and spec.body["workdir"]:
        spec.body["workdir"] = str(folder / spec.body["workdir"])
    return spec


def read_document(file: str, kind: str, hint: str) -> Spec:
    """The mapping in a YAML file, or on stdin for `-`. Messages call it `kind`; `hint` is told where it is none.

    Raises: `Failure`, with the line where there is one.
    """
    origin = "stdin" if file == STDIN else file
    text = _read(file, kind)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = dict(_lines(root, origin))
        body = yaml.load(text, Loader=Loader)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{origin}:{mark.line + 1}" if mark else origin
        raise Failure(place, f"not YAML: {error.problem or error.context}", code=ExitCode.USAGE) from error
    except yaml.YAMLError as error:
        raise Failure(origin, f"not YAML: {error}", code=ExitCode.USAGE) from error
    except (RecursionError, ValueError) as error:
        raise Failure(origin, f"not {kind}: {error}", code=ExitCode.USAGE) from error
    if not isinstance(body, dict):
        found = "empty" if body is None else f"a {type(body).__name__}"
        raise Failure(origin, f"{kind} is a mapping, this is {found}", hint=hint, code=ExitCode.USAGE)
    return Spec(body, origin, lines)


EXAMPLE_HINT: Final = "for instance:  name: hello / gpus: 1 / command: [nvidia-smi]  (see examples/)"


def _read(file: str, kind: str) -> str:
    try:
        if file == STDIN:
            raw = sys.stdin.buffer.read(SPEC_MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(SPEC_MAX_BYTES + 1)
    except OSError as error:
        raise Failure(file, f"cannot be read: {error.strerror}", code=ExitCode.USAGE) from error
    if len(raw) > SPEC_MAX_BYTES:
        hint = "keep large inputs in files and name their paths in the spec" if kind == "a job spec" else ""
        raise Failure(file, f"{kind} has at most {SPEC_MAX_BYTES >> 10} KiB", hint=hint)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Failure(file, f"not UTF-8 text: {error.reason}", code=ExitCode.USAGE) from error


def _lines(root: yaml.Node | None, origin: str) -> Iterator[tuple[str, int]]:
    """Every path in the tree with its line, from 1. Raises `Failure` for a key given twice, `ValueError` for too many."""
    pending = [("", 0, root)] if root else []
    for _ in range(NODES_MAX):
        if not pending:
            return
        path, line, node = pending.pop()
        if path:
            yield path, line
        prefix = f"{path}." if path else ""
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                if name in seen:
                    place = f"{origin}:{key.start_mark.line + 1}"
                    raise Failure(place, f"{prefix}{name} is given twice", code=ExitCode.USAGE)
                seen.add(name)
                pending.append((f"{prefix}{name}", key.start_mark.line + 1, value))
        elif isinstance(node, yaml.SequenceNode):
            pending += [(f"{prefix}{i}", value.start_mark.line + 1, value) for i, value in enumerate(node.value)]
    raise ValueError(f"more than {NODES_MAX} values, aliases followed")


def name_of(command: Sequence[str]) -> str:
    """A legal job name from the program that is run: `python train.py` is `train`."""
    words = [Path(word).name for word in command if not word.startswith("-")]
    script = next((word for word in words[1:] if word.endswith((".py", ".sh"))), words[0] if words else "job")
    stem = re.sub(r"[^a-z0-9]+", "-", script.rpartition(".")[0].lower() or script.lower()).strip("-")
    return stem[:40].strip("-") or "job"


def parse_pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """The values by name of an option that is given as NAME=VALUE, again and again. Raises `Failure`."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Failure(option, f"{pair!r} is not NAME=VALUE", code=ExitCode.USAGE)
        values[name] = value
    return values
