"""What the source says of a type beyond the type: its docstring, and the phrase behind each field or member."""

import ast
import inspect
import io
import tokenize
from collections.abc import Callable
from enum import Enum
from functools import cache
from itertools import takewhile
from textwrap import dedent
from types import ModuleType
from typing import Annotated, Any, NewType, TypeAlias, get_args, get_origin

import msgspec

Kind: TypeAlias = Any  # a type as an annotation has it: a class, a union, an alias


def says(thing: object) -> str:
    """The docstring, whole, without its indentation."""
    return inspect.cleandoc(thing.__doc__ or "")


def sentence(thing: object) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join(takewhile(bool, says(thing).splitlines()))


@cache
def phrases(cls: type) -> dict[str, str]:
    """The comment behind each field or member of a class, its bases' included; fields without one are missing."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("events."):
            found |= _phrases_of(dedent(inspect.getsource(base)))
    return found


def names_of(module: ModuleType) -> dict[str, str]:
    """The comment behind each `NewType` of a module, by its name; those without one are missing."""
    said = _behind(inspect.getsource(module), lambda tree: tree.body)
    return {name: phrase for name, phrase in said.items() if isinstance(getattr(module, name), NewType)}


def _phrases_of(source: str) -> dict[str, str]:
    return _behind(source, lambda tree: tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else [])


def _behind(source: str, body: Callable[[ast.Module], list[ast.stmt]]) -> dict[str, str]:
    """The comments behind the assignments of a body, by what is assigned."""
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = {}
    for statement in body(ast.parse(source)):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                if statement.end_lineno in comments:
                    found[name] = comments[statement.end_lineno]
            case _:
                pass  # docstrings, imports, functions
    return found


def type_name(kind: Kind) -> str:
    """A type as a reader of JSON knows it, by the project's own names where it has them."""
    origin: Kind = get_origin(kind)
    arguments = get_args(kind)
    if isinstance(kind, NewType):
        return kind.__name__
    if origin is tuple:
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return f"map of {type_name(arguments[0])} to {type_name(arguments[1])}"
    if origin is Annotated:
        return type_name(arguments[0])
    if arguments:
        return " or ".join(type_name(argument) for argument in arguments)
    plain = {"str": "text", "int": "integer", "float": "number", "bool": "boolean", "datetime": "time"}
    plain |= {"NoneType": "null", "Any": "anything"}
    name = getattr(kind, "__name__", str(kind))
    return plain.get(name, name)


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """What a field is when the document lacks it, as JSON; empty for one that must be there."""
    if field.required:
        return ""
    value = field.default_factory() if callable(field.default_factory) else field.default
    return msgspec.json.encode(value).decode()


def parts_of(kind: Kind) -> list[type]:
    """The structs and enums of ours that a type is made of, itself included, each once, in order of appearance."""
    found: dict[type, None] = {}
    _collect(kind, found)
    return list(found)


def _collect(kind: Kind, found: dict[type, None]) -> None:
    if isinstance(kind, type) and kind in found:
        return
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        found[kind] = None
        for field in msgspec.structs.fields(kind):
            _collect(field.type, found)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        found[kind] = None
    else:
        for argument in get_args(kind):
            _collect(argument, found)
