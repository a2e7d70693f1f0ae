"""Signatures: the published vector, secrets of every length, and rotation."""

import base64
from datetime import UTC, datetime

import pytest

from services.webhooks.signature import headers, parse_secret, sign, spell_secret, webhook_id_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = datetime.fromtimestamp(1_614_265_330, UTC)


def test_the_published_vector_holds() -> None:
    """So any library for Standard Webhooks verifies what we send."""
    signed = sign(parse_secret(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_each_secret_signs_in_one_header() -> None:
    """While a secret is replaced, receivers with the old one and with the new one accept the same request."""
    old, new = parse_secret(SECRET), bytes(range(32))
    sent = headers("id-1", b"{}", [new, old], AT)
    both = [sign(new, "id-1", 1_614_265_330, b"{}"), sign(old, "id-1", 1_614_265_330, b"{}")]
    assert sent == {
        "webhook-id": "id-1",
        "webhook-timestamp": "1614265330",
        "webhook-signature": " ".join(both),
    }


@pytest.mark.parametrize("length", [24, 25, 32, 64])
def test_a_secret_is_spelled_and_parsed_alike(length: int) -> None:
    """Of every legal length."""
    secret = bytes(range(length))
    assert parse_secret(spell_secret(secret)) == secret


@pytest.mark.parametrize(
    "text",
    [
        "",
        SECRET.removeprefix("whsec_"),
        "whsec_",
        "whsec_not base64 at all!",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsk_" + base64.b64encode(bytes(32)).decode(),
    ],
)
def test_what_is_no_secret_is_refused_and_not_repeated(text: str) -> None:
    """Errors end up in logs; a secret must not."""
    with pytest.raises(ValueError, match="secret") as refused:
        parse_secret(text)
    assert len(text) < 8 or text[6:] not in str(refused.value)


def test_an_id_has_no_dot() -> None:
    """A dot ends it in what is signed."""
    assert webhook_id_of("1f-0") == "1f-0"
    assert webhook_id_of("a.b.c") == "a-b-c"
