"""Reconciling in a process of its own."""

import msgspec
import pytest

from events.log.append import JetStreamLog
from events.log.streams import StreamSettings, found
from projections.tables.rebuild import rebuild
from runtime.embedded.nats import EmbeddedNats
from runtime.fault import Fault
from runtime.nats import Connection
from runtime.postgres import create_pool
from services.main.reconciled import reconciled_by_child


async def test_it_answers_with_what_it_compared(
    nats_server: EmbeddedNats, nats_connection: Connection, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings of whoever asks; also where something differs. Without servers it says what is missing."""
    await found(nats_connection, StreamSettings())
    pool = await create_pool(postgres_dsn, name="test", size_max=2)
    await rebuild(JetStreamLog(nats_connection), pool)
    login = nats_server.login("gate")
    monkeypatch.setenv("MUSTER_NATS_URLS", ",".join(login.urls))
    monkeypatch.setenv("MUSTER_NATS_USER", login.user)
    monkeypatch.setenv("MUSTER_NATS_PASSWORD", login.password)
    monkeypatch.setenv("MUSTER_POSTGRES_DSN", postgres_dsn)
    same = msgspec.json.decode(await reconciled_by_child())
    assert (same["same"], same["records"], same["accounts"]) == (True, 1, {})

    await pool.execute(
        """INSERT INTO live.account_view VALUES ('ghost', '{}', 0, 1, 0, 0, 0, 1, 0, 0, 0, true, false, false, 1)"""
    )
    await pool.close()
    differs = msgspec.json.decode(await reconciled_by_child())
    assert [alarm["what"] for alarm in differs["alarms"]] == ["granted_micro", "balance_micro"]

    monkeypatch.setenv("MUSTER_POSTGRES_DSN", "")
    with pytest.raises(Fault) as failed:
        await reconciled_by_child()
    assert failed.value.code == "not_reconciled"
    assert "muster" in str(failed.value)
