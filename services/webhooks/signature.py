"""Signatures of webhooks: secrets, and the header that proves who sent a body, unchanged and when.

Source: Standard Webhooks 1.0.0, "Signature scheme" and "Webhook headers".
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
SECRET_BYTES: Final = 32  # of one that is made here: as long as what HMAC-SHA256 gives
VERSION: Final = "v1"


def parse_secret(text: str) -> bytes:
    """The bytes of a secret as people hold it: `whsec_` and base64. Raises `ValueError`, which never shows the secret."""
    if not text.startswith(PREFIX):
        raise ValueError(f"a secret begins with {PREFIX}")
    try:
        secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"after {PREFIX}, a secret is base64") from None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ValueError(f"a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, not {len(secret)}")
    return secret


def spell_secret(secret: bytes) -> str:
    """The secret as people hold it."""
    assert SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX
    return PREFIX + base64.b64encode(secret).decode()


def webhook_id_of(event_id: str) -> str:
    """The id that a receiver knows an event by: that of its CloudEvents document, with no dot that could end it early."""
    return event_id.replace(".", "-")


def sign(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """One signature, with its version. `timestamp` is of the attempt, in seconds since 1970."""
    assert "." not in webhook_id
    digest = hmac.new(secret, f"{webhook_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"{VERSION},{base64.b64encode(digest).decode()}"


def headers(webhook_id: str, body: bytes, secrets: Sequence[bytes], at: datetime) -> dict[str, str]:
    """The three headers of an attempt at `at`. Each secret signs: a receiver accepts with any that it holds."""
    assert secrets, "an endpoint has a secret at all times"
    timestamp = int(at.timestamp())
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, webhook_id, timestamp, body) for secret in secrets),
    }
