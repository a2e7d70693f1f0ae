"""What /metrics tells beside requests: how far the tables are, what they show, and what this process's gate has done."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from events.alarm import AlarmCode
from projections.tables import alarm_view, gpu_view, node_view, promise_view, queue_view, run_view
from projections.tables.promise_view import Kept
from projections.tables.queue_view import QueueRow
from projections.tables.run_view import Evicted
from runtime.postgres import Connection
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


class Fleet(NamedTuple):
    """What the tables show of queues, promises and preemption."""

    queues: list[QueueRow]
    kept: Kept
    preempted: Evicted
    moved: Evicted
    earmarked: int
    sick: dict[tuple[str, str], int]  # GPUs that are out, by type and action
    raised: list[str]  # codes of alarms
    failed: dict[str, int]  # runs, by whose failure their end was
    clocks: tuple[float, float]  # of nodes: seconds that the last and the first are ahead of ours
    nodes: dict[tuple[str, str], int]  # by state, and what keeps new work from them


async def fleet_of(db: Connection) -> Fleet:
    """All of it, at one position."""
    return Fleet(
        queues=await queue_view.queues(db),
        kept=await promise_view.kept(db),
        preempted=await run_view.evicted(db, moved=False),
        moved=await run_view.evicted(db, moved=True),
        earmarked=await gpu_view.earmarked(db),
        sick=await gpu_view.sick(db),
        raised=[alarm.code for alarm in await alarm_view.alarms(db, raised=True)],
        failed=await run_view.failed(db),
        clocks=await node_view.clocks(db),
        nodes=await node_view.standings(db),
    )


class FleetMetrics(Collector):
    """What the tables showed when metrics were asked for last."""

    def __init__(self) -> None:
        self.shown: Fleet | None = None  # None: they cannot be read now, and nothing is told of them

    def collect(self) -> Iterator[Metric]:
        """See `Collector`. Counts are of the whole log: they go on after a restart."""
        if self.shown is None:
            return
        yield from _promises(self.shown.kept)
        yield from _evictions(self.shown)
        yield from _queues(self.shown.queues)
        yield from _health(self.shown)
        yield from _failures(self.shown)


def _promises(kept: Kept) -> Iterator[Metric]:
    made = CounterMetricFamily("muster_promises", "Promises of a start, all that were made.")
    made.add_metric((), sum(kept.outcomes.values()))
    ended = CounterMetricFamily(
        "muster_promises_ended", "Promises that ended, by what became of them.", labels=("outcome",)
    )
    for outcome, number in kept.outcomes.items():
        if outcome != promise_view.Outcome.OPEN:
            ended.add_metric((outcome,), number)
    slips = CounterMetricFamily("muster_promise_slips", "Moves of promises, by cause.", labels=("cause",))
    for cause, number in sorted(kept.slips.items()):
        slips.add_metric((cause,), number)
    hits = GaugeMetricFamily("muster_promise_hit_rate", "Kept promises among those kept or late; NaN without any.")
    hits.add_metric((), kept.hit_rate if kept.hit_rate is not None else float("nan"))
    yield from (made, ended, slips, hits)


def _evictions(shown: Fleet) -> Iterator[Metric]:
    runs = CounterMetricFamily("muster_evictions", "Runs that were to end for another job.", labels=("kind",))
    lost = CounterMetricFamily(
        "muster_evictions_lost_gpu_seconds", "GPU-seconds since their last checkpoint.", labels=("kind",)
    )
    for kind, evicted in (("preempted", shown.preempted), ("moved", shown.moved)):
        runs.add_metric((kind,), evicted.runs)
        lost.add_metric((kind,), evicted.lost_gpu_s)
    earmarked = GaugeMetricFamily("muster_gpus_earmarked", "GPUs that are set aside for a job.")
    earmarked.add_metric((), shown.earmarked)
    yield from (runs, lost, earmarked)


def _health(shown: Fleet) -> Iterator[Metric]:
    """Every alarm there is has its line, so that one that was never raised is 0 and no gap."""
    sick = GaugeMetricFamily(
        "muster_gpus_sick", "GPUs that verdicts took out of use.", labels=("gpu_type", "action")
    )  # fmt: skip
    for (gpu_type, action), gpus in sorted(shown.sick.items()):
        sick.add_metric((gpu_type, action), gpus)
    alarms = GaugeMetricFamily("muster_alarms", "1 for what needs a person now.", labels=("code",))
    for code in AlarmCode:
        alarms.add_metric((code,), int(code in shown.raised))
    clocks = GaugeMetricFamily(
        "muster_node_clock_ahead_seconds", "Of the clocks furthest behind and furthest ahead.", labels=("of",)
    )
    for of, ahead_s in zip(("least", "most"), shown.clocks, strict=True):
        clocks.add_metric((of,), ahead_s)
    nodes = GaugeMetricFamily(
        "muster_nodes", "Nodes, by whether they are heard, and by what keeps new work from them.", labels=("state", "standing")
    )  # fmt: skip
    for labels, number in sorted(shown.nodes.items()):
        nodes.add_metric(labels, number)
    yield from (sick, alarms, clocks, nodes)


def _failures(shown: Fleet) -> Iterator[Metric]:
    failed = CounterMetricFamily(
        "muster_runs_failed", "Runs that ended, by whose failure their end was.", labels=("category",)
    )
    for category, number in shown.failed.items():
        failed.add_metric((category,), number)
    yield failed


def _queues(queues: list[QueueRow]) -> Iterator[Metric]:
    used = GaugeMetricFamily(
        "muster_queue_gpus_used", "GPUs that a queue's own jobs hold.", labels=("queue", "gpu_type")
    )
    borrowed = GaugeMetricFamily("muster_queue_gpus_borrowed", "Of these, by borrowing.", labels=("queue",))
    waiting = GaugeMetricFamily("muster_queue_gpus_waiting", "GPUs that its waiting jobs ask for.", labels=("queue",))
    jobs = GaugeMetricFamily("muster_queue_jobs", "Its jobs that have not ended.", labels=("queue", "state"))
    for row in queues:
        for gpu_type, gpus in sorted(row.used.items()):
            used.add_metric((row.team, gpu_type), gpus)
        borrowed.add_metric((row.team,), row.borrowed)
        waiting.add_metric((row.team,), row.gpus_waiting)
        for state in ("queued", "admitted", "placed", "running", "stopping"):
            jobs.add_metric((row.team, state), getattr(row, state))
    yield from (used, borrowed, waiting, jobs)
