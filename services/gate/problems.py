"""What pydantic found wrong, as sentences that name the field, what was given and what was meant."""

import difflib
from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from events.ask import RefusalCode, Refused
from services.gate.names import shown

PROBLEMS_MAX: Final = 5  # told in one answer

# Names that people bring along from other schedulers; several where documents differ.
OTHER_NAMES: Final = {
    "cmd": "command",
    "run": "command",
    "args": "command",
    "script": "command",
    "entrypoint": "command",
    "gpu": "gpus",
    "num_gpus": "gpus",
    "gpu_count": "gpus",
    "accelerators": "gpus",
    "num_nodes": "nodes",
    "gpu_type": "gpu_types",
    "envs": "env",
    "environment": "env",
    "timeout": "max_runtime",
    "time": "max_runtime",
    "time_limit": "max_runtime",
    "max_duration": "max_runtime",
    "cwd": "workdir",
    "working_dir": "workdir",
    "retries": "retries_application",
    "max_retries": "retries_application",
    "job_name": "name",
    "min_nodes": "min_gpus",
    "node_selector": "labels",
    "nodeselector": "labels",
    "constraint": "labels",
    "constraints": "labels",
    "tolerations": "tolerates",
    "switches": "topology",
    "quota": "floor",
    "nominal_quota": "floor",
    "guaranteed": "floor",
    "guarantee": "floor",
    "deserved": "floor",
    "min": "floor",
    "max": "limit",
    "cap": "limit",
    "maximum": "limit",
    "share": "weight",
    "shares": "weight",
    "cohort": "parent",
    "teams": "children queues",
    "subqueues": "children",
    "queueing_strategy": "order",
    "stop_policy": "stop",
    "max_running": "running_max",
    "max_pending": "pending_max",
    "reservations": "promises",
    "backfill": "promises",
    "max_evictions": "evictions_max",
    "preempt": "preemption",
    "team": "queues",
    "credit": "overdraft",
    "credit_limit": "overdraft",
    "overdraw": "overdraft",
    "closed_until": "closed_through",
    "month": "closed_through",
    "effective_from": "from",
    "since": "from",
    "starts": "from",
    "price": "gpu_hour",
    "prices": "gpu_hour",
    "rates": "gpu_hour",
    "gpu_hours": "gpu_hour",
    "priorities": "classes",
    "priority": "classes",
    "factors": "classes",
    "granularity": "step",
    "rounding": "step",
    "installment": "instalment",
    "charge": "charge_from",
    "purse": "account",
    "project": "account",
    "wallet": "account",
}


def wrong(problem: str, hint: str = "") -> PydanticCustomError:
    """What a validator raises: `problem` is the end of a sentence that begins with the field."""
    return PydanticCustomError("wrong", "{problem}", {"problem": problem, "hint": hint})


def refusal_of(error: ValidationError, model: type[BaseModel]) -> Refused:
    """All that is wrong in one answer, up to `PROBLEMS_MAX`, with the first hint that there is.

    Fields that there are not come first: what is missing is often one of them, misspelt.
    """
    errors = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    found = [_sentence(detail, model) for detail in errors]
    return refusal(found)


def refusal(found: Sequence[tuple[str, str]]) -> Refused:
    """One answer for these sentences, each with a hint that may be empty."""
    told = "; ".join(sentence for sentence, _ in found[:PROBLEMS_MAX])
    if len(found) > PROBLEMS_MAX:
        told += f"; and {len(found) - PROBLEMS_MAX} more"
    hint = next((hint for _, hint in found if hint), "")
    return Refused(code=RefusalCode.INVALID, message=told, hint=hint)


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """What is wrong in one place, and a hint."""
    place = ".".join(str(part) for part in detail["loc"])
    given, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "wrong":
            problem = str(context["problem"])
            return (f"{place}: {problem}" if place else problem), str(context["hint"])
        case "extra_forbidden":
            return f"{place}: there is no such field", _did_you_mean(detail["loc"], model)
        case "missing":
            return f"{place}: is missing", _about(detail["loc"], model)
        case "greater_than":
            return f"{place}: must be more than {context['gt']}, not {shown(given)}", ""
        case "model_type" | "dict_type":
            return f"{place}: must be a mapping of fields to values, not {shown(given)}", ""
        case "string_type":
            hint = f'put quotes around it: "{given}"' if isinstance(given, int | float) else ""
            return f"{place}: must be text, not {shown(given)}", hint
        case "greater_than_equal":
            return f"{place}: must be {context['ge']} or more, not {shown(given)}", ""
        case "less_than_equal":
            return f"{place}: must be {context['le']} or less, not {shown(given)}", ""
        case "int_type" | "int_from_float":
            hint = f"write {given.strip()} without quotes" if isinstance(given, str) and given.strip().isdigit() else ""
            return f"{place}: must be a whole number, not {shown(given)}", hint
        case "bool_type":
            return f"{place}: must be true or false, not {shown(given)}", ""
        case "enum":
            wanted = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            return f"{place}: must be one of {', '.join(wanted)}, not {shown(given)}", near(str(given), wanted)
        case _:
            return f"{place}: {detail['msg']}, not {shown(given)}", ""


def _did_you_mean(path: tuple[int | str, ...], model: type[BaseModel]) -> str:
    typed = str(path[-1])
    known = [field.alias or name for name, field in _model_at(path[:-1], model).model_fields.items()]
    others = OTHER_NAMES.get(typed.lower().replace("-", "_"), "").split()
    if other := next((other for other in others if other in known), ""):
        return f"did you mean {other}?"
    return near(typed.lower().replace("-", "_"), known) or f"the fields are {', '.join(known)}"


def _model_at(path: tuple[int | str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """What describes the part of the document that `path` leads to."""
    for part in path:
        field = model.model_fields.get(str(part))
        nested = getattr(field.annotation, "__args__", ()) if field else ()
        model = next((kind for kind in nested if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    return model


def near(typed: str, known: Sequence[str]) -> str:
    """`did you mean …?` with the known name that is nearest; empty where none is near."""
    near = difflib.get_close_matches(typed, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def _about(path: tuple[int | str, ...], model: type[BaseModel]) -> str:
    name = str(path[-1])
    field = _model_at(path[:-1], model).model_fields.get(name)
    return f"{name}: {field.description}" if field and field.description else ""
