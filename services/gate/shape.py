"""What a standing document must be before its fields are looked at: a mapping, and not too large."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from events.ask import RefusalCode, Refused
from services.gate.names import shown

DOCUMENT_BYTES_MAX: Final = 256 * 1024  # of a document, as JSON


def shaped(raw: object, document: str, field: str, example: str) -> dict[str, Any] | Refused:
    """The mapping that `raw` is, or why it is not looked at any further. Messages call it `document`; `field` is in it."""
    if not isinstance(raw, Mapping):
        message = f"{document}: the document must be a mapping with the field {field}, not {shown(raw)}"
        return Refused(code=RefusalCode.INVALID, message=message, hint=example)
    try:
        size = len(msgspec.json.encode(raw))
    except (TypeError, ValueError, RecursionError) as error:
        return Refused(code=RefusalCode.INVALID, message=f"{document}: cannot be written as JSON: {error}")
    if size > DOCUMENT_BYTES_MAX:
        message = f"{document}: has {size} bytes, {DOCUMENT_BYTES_MAX} is the most"
        return Refused(code=RefusalCode.TOO_LARGE, message=message)
    return dict(raw)
