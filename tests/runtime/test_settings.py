"""Settings: what the environment says, within limits, and never a password in a message."""

from ipaddress import ip_network

import pytest
from pydantic import ValidationError

from runtime.settings import AgentSettings, ApiSettings, CommonSettings, ControlSettings, WebhooksSettings


def test_variables_are_read_and_all_else_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are separated by commas; a process knows its own user."""
    monkeypatch.setenv("MUSTER_NATS_URLS", "nats://one:4222, nats://two:4222")
    monkeypatch.setenv("MUSTER_NATS_PASSWORD", "secret")
    settings = ControlSettings()
    assert settings.login.urls == ("nats://one:4222", "nats://two:4222")
    assert (settings.login.user, settings.login.password) == ("control", "secret")
    assert "secret" not in repr(settings) + repr(settings.login)
    assert (settings.lease_s, settings.round_every_s) == (2.0, 0.2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MUSTER_CELL", "a.b"),
        ("MUSTER_CELL", ""),
        ("MUSTER_NATS_URLS", ""),
        ("MUSTER_LEASE_S", "1.9"),  # less than ten rounds
        ("MUSTER_ROUND_EVERY_S", "0.3"),
        ("MUSTER_ROUND_EVERY_S", "nan"),
        ("MUSTER_PORT", "65536"),
        ("MUSTER_LOG_LEVEL", "loud"),
        ("MUSTER_GPUS", "simulated"),
        ("MUSTER_GPUS", "simulated:8:"),
        ("MUSTER_NODE_ID", "Node_1"),
        ("MUSTER_LABELS", "fabric"),
        ("MUSTER_LABELS", "fabric=ib,fabric=eth"),
        ("MUSTER_LABELS", "fabric=a|b"),
        ("MUSTER_TAINTS", "under repair"),
        ("MUSTER_RACK", "r,1"),
        ("MUSTER_HEARTBEAT_EVERY_S", "0"),
        ("MUSTER_WEBHOOKS_ALLOW", "10.0.0.0/8,localhost"),
        ("MUSTER_WEBHOOKS_ALLOW", "10.0.0.1/8"),
    ],
)
def test_what_is_out_of_its_limits_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with a wrong setting does not start, and says which."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as refused:
        _ = (ControlSettings(), ApiSettings(), AgentSettings())
    assert name.removeprefix("MUSTER_").lower() in str(refused.value)


@pytest.mark.parametrize("gpus", ["nvml", "simulated:8", "simulated:8:H200"])
def test_a_node_names_its_gpus(gpus: str) -> None:
    """Real ones, or any number of simulated ones, of a type if wanted."""
    assert AgentSettings(gpus=gpus).gpus == gpus


def test_a_node_says_where_it_stands_and_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and taints are separated by commas; rack and spine are labels too, and are not said in two ways."""
    assert (AgentSettings().said_labels, AgentSettings().taints) == ({}, ())
    for name, value in (("LABELS", "fabric=ib, disk=nvme"), ("TAINTS", "old,new"), ("RACK", "r1"), ("SPINE", "s1")):
        monkeypatch.setenv(f"MUSTER_{name}", value)
    said = AgentSettings()
    assert said.said_labels == {"fabric": "ib", "disk": "nvme", "rack": "r1", "spine": "s1"}
    assert said.taints == ("old", "new")
    monkeypatch.setenv("MUSTER_LABELS", "rack=r2")
    with pytest.raises(ValidationError, match="rack is 'r2' there and 'r1' in MUSTER_RACK"):
        AgentSettings()


def test_networks_that_webhooks_may_go_to_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the API and of the part that sends, alike; none, where nobody says so."""
    assert (WebhooksSettings().webhooks_allow, ApiSettings().webhooks_allow) == ((), ())
    monkeypatch.setenv("MUSTER_WEBHOOKS_ALLOW", "10.0.0.0/8, fd00::/8,")
    said = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert (WebhooksSettings().webhooks_allow, ApiSettings().webhooks_allow) == (said, said)
    assert (WebhooksSettings().nats_user, ApiSettings().nats_user) == ("reader", "gate")


def test_settings_do_not_change() -> None:
    """They are values: read once, passed on."""
    with pytest.raises(ValidationError):
        CommonSettings().cell = "other"  # type: ignore[misc] # that is the point


def test_every_setting_says_what_it_means() -> None:
    """Each has a description, a default, and its unit in its name."""
    for settings in (ControlSettings, ApiSettings, AgentSettings, WebhooksSettings):
        for name, field in settings.model_fields.items():
            assert not field.is_required(), name
            assert field.description or name == "nats_user", name
