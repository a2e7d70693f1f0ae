"""Settings of processes, and what ends them."""

import pytest

from runtime.fault import Fault
from runtime.settings import ApiSettings, ControlSettings
from services.main.parts import first_of, read


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
