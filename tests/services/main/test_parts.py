"""Settings of processes, and what ends them."""

import asyncio

import pytest
import structlog.testing

from events.base import START
from events.head import LogFounded
from events.log.memory import MemoryLog
from projections.tables.waiting import Shown
from runtime.clock import SystemClock
from runtime.fault import Fault
from runtime.postgres import create_pool
from runtime.settings import ApiSettings, ControlSettings
from services.main.parts import first_of, projecting, read
from tests.fixtures.waiting import until


def test_a_wrong_setting_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is wrong with it, without its value: it may be a password."""
    monkeypatch.setenv("MUSTER_PORT", "many")
    with pytest.raises(Fault, match=r"^MUSTER_PORT: .*valid integer") as failed:
        read(ApiSettings)
    assert failed.value.code == "settings_wrong"
    assert "many" not in str(failed.value)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the defaults of their process."""
    monkeypatch.setenv("MUSTER_NATS_URLS", "nats://a:1, nats://b:2")
    settings = read(ControlSettings)
    assert settings.nats_urls == ("nats://a:1", "nats://b:2")
    assert settings.nats_user == "control"


def test_of_several_faults_one_is_told() -> None:
    """However deep the groups are that it came through."""
    fault = Fault("a", "It broke.")
    assert first_of(ExceptionGroup("x", [ExceptionGroup("y", [fault]), Fault("b", "It broke too.")])) is fault


async def founded(log_id: str) -> MemoryLog:
    """A log of this id."""
    log = MemoryLog("main", SystemClock().now)
    await log.append([LogFounded(at=SystemClock().now(), log_id=log_id, cell="main")], after=START)
    return log


async def test_tables_of_another_log_end_no_process(postgres_dsn: str) -> None:
    """What an operator has to mend is said, and looked at again; gate and API of the same process go on."""
    pool = await create_pool(postgres_dsn, name="test", size_max=3)
    try:
        log = await founded("log-1")
        following = asyncio.create_task(projecting(log, pool))
        await Shown(pool).wait_for(await log.end(), 10)
        following.cancel()
        await asyncio.wait({following})

        with structlog.testing.capture_logs() as lines:
            following = asyncio.create_task(projecting(await founded("log-2"), pool))
            await until(lambda: lines or following.done(), what="it says what is wrong")
        assert not following.done()
        assert [(line["event"], line["code"]) for line in lines] == [("tables_stand_still", "tables_of_another_log")]
        following.cancel()
        await asyncio.wait({following})
    finally:
        pool.terminate()
