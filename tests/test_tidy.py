"""The numbers and names of the style, held for every file: lengths, docstrings, words, paths, tests beside the code."""

import ast
import os
import re
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agent", "bench", "events", "migrations", "projections", "runtime", "services")
TESTED = ("services/", "projections/", "agent/core/")  # each module here has tests of its own
IMPURE_EVENTS = {"events.docs"}  # writes documents; nothing that decides imports it

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 400
PARAMETERS_MAX = 5
# "path:function" → why it has more.
PARAMETERS_ALLOWED: dict[str, str] = {}

EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
# In pieces, so that this file holds none of what it looks for.
UNDONE = re.compile(
    r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "NotImplemented" + "Error")) + r")\b"
)
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(" + "|".join(("wor" + "k", "roo" + "t", "hom" + "e", "User" + "s")) + r")/")
REGISTRIES = re.compile(
    "|".join(
        re.escape(name + end)
        for name, end in (
            ("pypi", ".org"),
            ("pythonhosted", ".org"),
            ("registry", ".npmjs"),
            ("deb", ".debian.org"),
            ("docker", ".io/"),
            ("ghcr", ".io"),
            ("quay", ".io"),
        )
    )
)
OUTSIDE = ".." + "/shared"
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")

NOT_OURS = {"build", "dist", "__pycache__", "results"}  # made by tools, as .gitignore says
HIDDEN_AND_OURS = {".ci", ".github"}

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> tuple[Path, ...]:
    """All files of the project, without what tools made, relative to its root, in order."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in NOT_OURS and (not f.startswith(".") or f in HIDDEN_AND_OURS)]
        found += [Path(folder, name).relative_to(ROOT) for name in names if not name.endswith((".pyc", ".swp"))]
    return tuple(sorted(found))


@cache
def text(path: Path) -> str:
    """What the file says; nothing, if it is no text."""
    try:
        return (ROOT / path).read_text("utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a Python file, as Python 3.11 reads it."""
    return ast.parse(text(path), str(path), feature_version=(3, 11))


def python_files() -> list[Path]:
    """All Python files, of packages, tests and examples."""
    return [path for path in files() if path.suffix == ".py"]


def modules() -> list[Path]:
    """All Python files of the packages that are installed."""
    return [path for path in python_files() if path.parts[0] in PACKAGES]


def functions() -> Iterator[tuple[str, AnyFunction]]:
    """All functions and methods of the packages, each with its place."""
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, AnyFunction):
                yield f"{path}:{node.name}", node


def dotted(path: Path) -> str:
    """The name a module is imported by."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def typed_by_users() -> frozenset[str]:
    """The names that stand for an annotated type: `ApiUrl = Annotated[str, typer.Option()]`."""
    assigned = [node for path in modules() for node in tree(path).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [(n.targets[0] if isinstance(n, ast.Assign) else n.target, n.value) for n in assigned]
    return frozenset(t.id for t, value in targets if isinstance(t, ast.Name) and is_option(value, frozenset()))


def is_option(annotation: ast.expr | None, names: frozenset[str]) -> bool:
    """Whether a parameter is an option of a command or a field of a request: users name it, no caller counts it."""
    if isinstance(annotation, ast.BinOp):
        return is_option(annotation.left, names)
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
        return isinstance(annotation, ast.Name) and annotation.id == "Annotated"
    return isinstance(annotation, ast.Name) and annotation.id in names


def parameters(function: AnyFunction) -> int:
    """How many parameters a caller sees: all but self, cls and what users type."""
    positional = [*function.args.posonlyargs, *function.args.args]
    if positional and positional[0].arg in {"self", "cls"}:
        del positional[0]
    rest = [a for a in (function.args.vararg, function.args.kwarg) if a]
    every = [*positional, *function.args.kwonlyargs, *rest]
    return sum(not is_option(a.annotation, typed_by_users()) for a in every)


def imports(path: Path) -> set[str]:
    """Every name that a file imports, and every module that it might mean by it."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def said(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Where a pattern occurs: path, line and what was found."""
    return [
        f"{path}:{number}: {found.group()}"
        for path in paths
        for number, line in enumerate(text(path).splitlines(), 1)
        if (found := pattern.search(line))
    ]


def none(found: Iterable[object]) -> None:
    """Nothing was found; else the test fails and lists all of it."""
    lines = sorted(map(str, found))
    assert not lines, "\n".join(lines)


def test_there_is_something_to_look_at() -> None:
    """The rules below are held to the real tree, not to an empty one."""
    assert {path.parts[0] for path in modules()} == set(PACKAGES)
    assert sum(1 for _ in functions()) > 5


def test_every_python_file_parses_as_the_oldest_python_supported() -> None:
    """A newer grammar would break whoever runs 3.11."""
    for path in python_files():
        assert tree(path) is not None


def test_functions_fit_a_screen() -> None:
    """Control flow in one place can be checked."""
    lengths = {place: (f.end_lineno or f.lineno) - f.lineno + 1 for place, f in functions()}
    none(f"{place}: {n} lines" for place, n in lengths.items() if n > FUNCTION_LINES_MAX)


def test_functions_take_few_parameters() -> None:
    """More than five are a thing without a name; and the list of exceptions holds none that is not needed."""
    many = {place for place, f in functions() if parameters(f) > PARAMETERS_MAX}
    none(many - PARAMETERS_ALLOWED.keys())
    none(PARAMETERS_ALLOWED.keys() - many)


def test_modules_have_one_subject() -> None:
    """A module above 400 lines has two."""
    lengths = {str(path): len(text(path).splitlines()) for path in modules()}
    none(f"{path}: {n} lines" for path, n in lengths.items() if n > MODULE_LINES_MAX)


def test_modules_say_first_what_is_in_them() -> None:
    """The first line of each file is a docstring that says something."""
    silent = [
        str(path)
        for path in python_files()
        if (text(path) or path.parts[0] != "tests")  # a folder of tests needs no words
        and not (ast.get_docstring(tree(path)) or "").partition("\n")[0].strip()
    ]
    none(silent)


def test_tests_say_what_holds_and_why() -> None:
    """Each test has a docstring: its name is the law, the docstring its reason."""
    mute = [
        f"{path}:{node.name}"
        for path in python_files()
        if path.parts[0] == "tests"
        for node in ast.walk(tree(path))
        if isinstance(node, AnyFunction) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    none(mute)


def test_names_are_index_entries() -> None:
    """No file or folder has a name that anything could be in."""
    none([str(path) for path in python_files() if {path.stem, *path.parts[:-1]} & EMPTY_NAMES])


def test_nothing_is_left_to_do() -> None:
    """What is here is whole; what is not is left out."""
    none(said(UNDONE, [p for p in files() if p.suffix in {".py", ".sql", ".sh", ".toml", ".yml", ".yaml"}]))


def test_no_file_names_a_folder_of_one_machine() -> None:
    """A clone works wherever it lies."""
    none(said(MACHINE_PATH, list(files())))


def test_no_file_names_a_registry() -> None:
    """Where packages and images come from is the choice of whoever installs."""
    none(said(REGISTRIES, list(files())))


def test_documents_stay_inside_the_project() -> None:
    """Every link of a document leads to a file that a clone has."""
    documents = [path for path in files() if path.suffix == ".md"]
    none(said(re.compile(re.escape(OUTSIDE)), list(files())))
    dead = [
        f"{path}: {link}"
        for path in documents
        for link in LINK.findall(text(path))
        if not (ROOT / path.parent / link).exists()
    ]
    none(dead)


def test_modules_that_decide_or_answer_have_tests() -> None:
    """Each has its file at the mirrored path, or one that imports it or names it as a process to start."""
    tests = [path for path in python_files() if path.parts[0] == "tests"]
    named = set().union(*map(imports, tests))
    every_text = "\n".join(map(text, tests))
    untested = [
        str(path)
        for path in modules()
        if str(path).startswith(TESTED)
        and any(not isinstance(node, ast.Expr) for node in tree(path).body)
        and Path("tests", path.parent, f"test_{path.name}") not in tests
        and dotted(path) not in named
        and not re.search(rf"[\"' ]{re.escape(dotted(path))}[\"' ]", every_text)
    ]
    none(untested)


def test_every_event_module_is_held_pure() -> None:
    """A new family of events is added to the layer contract in the same change."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    held = set(contracts["importlinter:contract:pure"]["source_modules"].split())
    families = {dotted(path) for path in modules() if path.parent == Path("events")} - {"events"} - IMPURE_EVENTS
    none(families - held)
