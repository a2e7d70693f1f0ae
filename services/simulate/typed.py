"""Files as people type them, checked against a model; queues and policy in them as operators type them anywhere."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from events.ask import Refused
from events.policy import PolicySet
from events.queues import QueuesSet
from services.gate.policy import checked_policy
from services.gate.problems import refusal_of
from services.gate.queues import checked_queues
from services.simulate.fault import BadFile


class Typed(BaseModel):
    """A mapping in a file: fields that it does not have are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


M = TypeVar("M", bound=Typed)


def checked(body: Mapping[str, Any], model: type[M]) -> M:
    """The file as `model` has it. Raises: `BadFile`, which begins with the field."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        refused = refusal_of(error, model)
        raise BadFile(0, refused.message, hint=refused.hint) from None


def policy_of(document: Any, at: datetime, *, within: str = "") -> PolicySet:  # noqa: ANN401  # as typed
    """The policy that a document describes, the one of `muster policy apply`. `within`: the field it stands in.

    Raises: `BadFile`, which begins with the field.
    """
    found = checked_policy(document, at)
    if isinstance(found, Refused):
        named = found.message.startswith("policy:")
        raise BadFile(0, f"{within}.{found.message}" if within and not named else found.message, hint=found.hint)
    return found


def queues_of(document: Any, at: datetime) -> QueuesSet:  # noqa: ANN401  # as typed
    """The tree that a document describes, the one of `muster queue apply`. Raises: `BadFile`, likewise."""
    found = checked_queues(document, at)
    if isinstance(found, Refused):
        raise BadFile(0, found.message, hint=found.hint)
    return found
