"""Endpoints: their ids, and the secrets that sign at a time."""

from datetime import timedelta

from services.webhooks import endpoints
from services.webhooks.endpoints import SECRETS_MAX, endpoint_id_for
from tests.services.webhooks.sending import SECRET, Sender

NEW = [bytes([n]) * 32 for n in range(SECRETS_MAX + 1)]


def test_a_key_names_one_endpoint() -> None:
    """The same for ever; another key another one."""
    assert endpoint_id_for("a") == endpoint_id_for("a")
    assert endpoint_id_for("a") != endpoint_id_for("b")
    assert len(endpoint_id_for("a")) == 14


async def test_a_secret_signs_until_its_grace_is_over(sender: Sender) -> None:
    """The newest first; a later rotation never makes an earlier one last longer."""
    await sender.endpoint("https://hooks.example/")
    now = sender.clock.now()
    async with sender.pool.acquire() as conn:
        assert await endpoints.rotate(conn, "w1", NEW[0], now=now, until=now + timedelta(hours=1))
        assert not await endpoints.rotate(conn, "w1", NEW[0], now=now, until=now)
        assert await endpoints.rotate(conn, "w1", NEW[1], now=now, until=now + timedelta(hours=2))
        assert (await endpoints.secrets(conn, {"w1"}, now))["w1"] == [NEW[1], NEW[0], SECRET]
        assert (await endpoints.secrets(conn, {"w1"}, now + timedelta(hours=1)))["w1"] == [NEW[1], NEW[0]]
        await endpoints.forget_secrets(conn, now + timedelta(hours=2))
        assert (await endpoints.secrets(conn, {"w1"}, now))["w1"] == [NEW[1]]


async def test_only_so_many_secrets_sign(sender: Sender) -> None:
    """A header has an end: the newest ones."""
    await sender.endpoint("https://hooks.example/")
    now = sender.clock.now()
    async with sender.pool.acquire() as conn:
        for secret in NEW:
            await endpoints.rotate(conn, "w1", secret, now=now, until=now + timedelta(hours=1))
        assert (await endpoints.secrets(conn, {"w1"}, now))["w1"] == NEW[:0:-1]
