"""What would become of a job: where, at whose cost, and that nothing of it stays."""

from typing import Any

from events.ask import DryRun, DryRunAsk, Outcome
from events.base import TeamId
from events.job import HoldCode, JobSpec
from events.queues import Queue, QueueStop
from projections.cluster.snapshot import dump
from services.control.dry_run import TRIED, dry_run
from services.gate.names import is_job_id
from tests.clusters import World
from tests.purses import CREDIT, Purse


def tried(world: World, gpus: int, *, team: str = "t", **spec: Any) -> DryRun:
    """The answer for such a job; the cluster stays as it was, byte for byte."""
    before = dump(world.cluster)
    asked = JobSpec(name="x", command=("true",), gpus=gpus, **spec)
    answer = dry_run(world.cluster, DryRunAsk(team=TeamId(team), spec=asked), world.tick())
    assert dump(world.cluster) == before
    assert answer.position == world.cluster.position
    return answer


def test_a_job_that_fits_would_start_where_a_submitted_one_does() -> None:
    """The deciders themselves say so."""
    world = World({"n1": 8, "n2": 8, "n3": 4})
    would = tried(world, 16)
    assert (would.outcome, would.nodes, would.gpu_type, would.gpus) == (
        Outcome.STARTS, {"n1": 8, "n2": 8}, "h100", 16,
    )  # fmt: skip
    assert (would.used, would.borrowed, would.why) == (16, 0, None)
    job = world.submit("job", 16)
    world.rounds()
    assert world.placed[job] == list(would.nodes.items())


def test_an_elastic_gang_would_get_what_there_is() -> None:
    """Fewer than it asks for."""
    world = World({"n1": 8, "n2": 8})
    assert tried(world, 32, min_gpus=8).gpus == 16


def test_a_job_that_waits_is_told_what_why_would_say() -> None:
    """Code, sentence and numbers; with what its team would have."""
    world = World({"n1": 8})
    world.put(world.submit("runs", 8), n1=8)
    world.rounds()
    would = tried(world, 64)
    assert (would.outcome, would.code) == (Outcome.WAITS, HoldCode.EXCEEDS_CLUSTER)
    assert would.why is not None
    assert (would.why.job_id, would.why.message) == (TRIED, would.message)
    assert not is_job_id(TRIED)
    assert (would.gpus, would.used, would.nodes) == (64, 72, {})


def test_a_queue_that_takes_no_more_rejects_it() -> None:
    """With the reason that the log would have."""
    world = World({"n1": 8})
    world.queues(Queue(name=TeamId("t"), stop=QueueStop.PAUSE, pending_max=0))
    would = tried(world, 8)
    assert (would.outcome, would.code) == (Outcome.REJECTED, "too_many_pending")
    assert "queue t lets 0 jobs wait" in would.message


def test_those_that_would_be_stopped_for_it_are_named() -> None:
    """A team that has less than its share takes from one that has more; the rest of the place is free already."""
    world = World({"n1": 8, "n2": 8})
    world.queues(Queue(name=TeamId("t")), Queue(name=TeamId("other")))
    for node in ("n1", "n2"):
        world.put(world.submit(f"on-{node}", 8, team="other"), **{node: 8})
    world.wait(120)
    would = tried(world, 8)
    assert (would.outcome, would.code, len(would.preempts)) == (Outcome.PREEMPTS, HoldCode.WAITS_FOR_PREEMPTED, 1)
    assert would.preempts[0] in {"on-n1", "on-n2"}
    assert sum(would.nodes.values()) == 8
    assert (would.entitled, would.used, would.borrowed) == (8, 8, 0)
    assert would.why is not None
    assert would.why.estimated_start is not None


def test_what_it_borrows_is_what_others_may_take_back() -> None:
    """Beyond what its team may claim once the others want theirs."""
    world = World({"n1": 8, "n2": 8})
    world.queues(Queue(name=TeamId("t")), Queue(name=TeamId("other")))
    world.put(world.submit("mine", 8), n1=8)
    assert tried(world, 8).borrowed == 0
    world.submit("theirs", 16, team="other")
    assert tried(world, 4).borrowed == 4


def test_a_promise_it_would_get_has_its_start() -> None:
    """From what those that run have declared."""
    world = World({"n1": 8, "n2": 8})
    world.put(world.submit("runs", 8, max_runtime_s=600), n1=8)
    would = tried(world, 16)
    assert (would.outcome, would.code, would.nodes) == (
        Outcome.PROMISED, HoldCode.PROMISED, {"n1": 8, "n2": 8},
    )  # fmt: skip
    assert would.why is not None
    assert would.why.estimated_start is not None
    assert would.why.estimated_start > world.at


def test_more_before_it_than_is_tried_is_said() -> None:
    """It is the youngest: thousands of new jobs come first, and a dry run is bounded."""
    world = World({"n1": 8})
    for number in range(4_100):
        world.submit(f"j{number}", 1)
    would = tried(world, 1)
    assert (would.outcome, would.message) == (
        Outcome.NOT_EVALUATED, "more jobs are decided before it than a dry run waits for",
    )  # fmt: skip


def test_what_would_be_reserved_is_said_whether_it_starts_or_waits() -> None:
    """On which account, and how that is worked out; what is missing where it waits for credits."""
    world = Purse({"n1": 8}, granted=150)
    starts = tried(world, 8, max_runtime_s=36_000)
    assert (starts.outcome, starts.account, starts.reserves_micro, starts.short_micro) == (
        Outcome.STARTS, "a", 80 * CREDIT, 0,
    )  # fmt: skip
    assert starts.charge == "8 GPUs for 10 h at 1 credit a GPU-hour (h100)"
    waits = tried(world, 8, max_runtime_s=86_400)
    assert (waits.outcome, waits.code, waits.short_micro) == (Outcome.WAITS, HoldCode.CREDITS, 42 * CREDIT)
    assert "needs 192 credits" in waits.message
    free = tried(world, 8, team="other")
    assert (free.outcome, free.account, free.reserves_micro, free.charge) == (Outcome.STARTS, "", None, "")
