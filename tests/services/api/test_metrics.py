"""What the gate has done, as Prometheus reads it."""

from prometheus_client import CollectorRegistry, generate_latest

from events.ask import Submit
from events.base import TeamId
from events.log.memory import MemoryLog
from projections.tables.promise_view import Kept, Outcome
from projections.tables.queue_view import QueueRow
from projections.tables.run_view import Evicted
from runtime.clock import ManualClock
from services.api.metrics import Fleet, FleetMetrics, GateMetrics, Gauges
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


def test_what_the_tables_show_is_told_while_they_can_be_read() -> None:
    """Counts by outcome and cause, gauges by queue; nothing rather than old numbers while they are away."""
    registry, metrics = CollectorRegistry(), FleetMetrics()
    registry.register(metrics)
    assert generate_latest(registry) == b""
    kept = Kept({**dict.fromkeys(Outcome, 0), "kept": 3, "late": 1, "open": 2}, {"node": 4})
    red = QueueRow(TeamId("red"), running=2, gpus_waiting=7, used={"a100": 1, "h100": 8}, borrowed=5)
    metrics.shown = Fleet(
        [red], kept, Evicted(6, 90.5), Evicted(1, 0.0), 40, {("h100", "reset"): 3}, ["breaker"], {}, (-4.5, 60.0),
        {("up", "draining"): 2},
    )  # fmt: skip
    told = generate_latest(registry).decode()
    for line in (
        "muster_promises_total 6.0",
        'muster_promises_ended_total{outcome="late"} 1.0',
        'muster_promise_slips_total{cause="node"} 4.0',
        "muster_promise_hit_rate 0.75",
        'muster_evictions_total{kind="preempted"} 6.0',
        'muster_evictions_lost_gpu_seconds_total{kind="preempted"} 90.5',
        "muster_gpus_earmarked 40.0",
        'muster_nodes{standing="draining",state="up"} 2.0',
        'muster_gpus_sick{action="reset",gpu_type="h100"} 3.0',
        'muster_alarms{code="breaker"} 1.0',
        'muster_alarms{code="network_suspected"} 0.0',
        'muster_node_clock_ahead_seconds{of="least"} -4.5',
        'muster_node_clock_ahead_seconds{of="most"} 60.0',
        'muster_queue_gpus_used{gpu_type="a100",queue="red"} 1.0',
        'muster_queue_gpus_borrowed{queue="red"} 5.0',
        'muster_queue_gpus_waiting{queue="red"} 7.0',
        'muster_queue_jobs{queue="red",state="running"} 2.0',
    ):
        assert line in told
    assert 'outcome="open"' not in told
