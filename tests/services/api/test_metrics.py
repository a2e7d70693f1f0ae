"""What the gate has done, as Prometheus reads it."""

from prometheus_client import CollectorRegistry, generate_latest

from events.ask import Submit
from events.base import TeamId
from events.log.memory import MemoryLog
from runtime.clock import ManualClock
from services.api.metrics import GateMetrics, Gauges
from services.gate.gate import open_gate

CLOCK = ManualClock()
SPEC = {"name": "train", "command": "true", "gpus": 1}


async def test_answers_and_appends_are_counted() -> None:
    """By what was asked and the outcome, by lane; a gate that did nothing has its names already."""
    registry = CollectorRegistry()
    Gauges(registry).lag.set(3)
    async with open_gate(MemoryLog("main", CLOCK.now), CLOCK) as gate:
        registry.register(GateMetrics(gate))
        before = generate_latest(registry).decode()
        assert 'muster_gate_facts_total{lane="asks"} 0.0' in before
        for spec in (SPEC, SPEC, {}):
            await gate.submit(TeamId("red"), Submit(key="k", spec=spec), "user:ada")
    after = generate_latest(registry).decode()
    for outcome in ("accepted", "repeated", "invalid"):
        assert f'muster_gate_answers_total{{asked="submit",outcome="{outcome}"}} 1.0' in after
    assert 'muster_gate_appends_total{lane="asks",outcome="done"} 1.0' in after
    assert 'muster_gate_waiting{lane="asks"} 0.0' in after
    assert "muster_projection_lag_events 3.0" in after
