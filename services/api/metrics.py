"""What /metrics tells beside requests: how far the tables are, and what the gate of this process has done."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.gate.gate import Gate


class Gauges:
    """What is measured when metrics are asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lag = Gauge("muster_projection_lag_events", "Events that the tables do not show yet.", registry=registry)
        self.position = Gauge("muster_projection_position", "Position that the tables show.", registry=registry)
        self.unreadable = Gauge("muster_unreadable_records", "Records that cannot be read.", registry=registry)
        self.streams = Gauge("muster_http_streams", "Streams that are open.", registry=registry)


class GateMetrics(Collector):
    """What the gate of this process has done."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        answers = CounterMetricFamily("muster_gate_answers", "Asks and reports answered.", labels=("asked", "outcome"))
        for (asked, outcome), number in sorted(self._gate.answers.items()):
            answers.add_metric((asked, outcome), number)
        yield answers
        appends = CounterMetricFamily("muster_gate_appends", "Appends by outcome.", labels=("lane", "outcome"))
        facts = CounterMetricFamily("muster_gate_facts", "Facts recorded.", labels=("lane",))
        waiting = GaugeMetricFamily("muster_gate_waiting", "Facts that wait for an append.", labels=("lane",))
        for lane, counts in self._gate.counts.items():
            appends.add_metric((lane, "done"), counts.appends)
            appends.add_metric((lane, "conflict"), counts.conflicts)
            appends.add_metric((lane, "unknown"), counts.unknown)
            facts.add_metric((lane,), counts.facts)
            waiting.add_metric((lane,), counts.waiting)
        yield from (appends, facts, waiting)
