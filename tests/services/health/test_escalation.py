"""History makes verdicts graver: repeat offenders, errors that are not the application's, lemons."""

from datetime import datetime, timedelta

from events.base import GpuUuid, Position
from events.gpu import GpuAction, GpuSignal, Recovery
from projections.cluster.fitness import FIT, Fault, Fitness, Pending
from services.health.escalation import incidents, is_lemon, judge, score
from tests.clusters import BEGIN

GPU, OTHER = GpuUuid("n1-0"), GpuUuid("n1-1")
NOW = BEGIN + timedelta(days=60)


def ago(**time: float) -> datetime:
    """So long before now."""
    return NOW - timedelta(**time)


def sign(code: int, gpu: GpuUuid = GPU, *, held_back: bool = False, since: tuple[Recovery, ...] = ()) -> Pending:
    """An XID, now."""
    return Pending(Position(9), NOW, gpu, GpuSignal.XID, code, held_back=held_back, since=since)


def fault(at: datetime, gpu: GpuUuid = GPU, action: GpuAction = GpuAction.RESET, code: int = 95) -> Fault:
    """A verdict of before."""
    return Fault(at, gpu, GpuSignal.XID, code, action)


def verdict(one: Pending, *history: Fault, noted: tuple[Fault, ...] = ()) -> tuple[GpuAction, str]:
    """The action and the rule."""
    judged = judge(Fitness(history=history, noted=noted), one, NOW)
    return judged.line.action, judged.rule


def test_without_a_history_the_table_decides() -> None:
    """By its line."""
    assert verdict(sign(95)) == (GpuAction.RESET, "xid 95")


def test_the_fifth_fault_of_a_gpu_in_a_day_wants_an_operator() -> None:
    """Resets have not helped: neither a sixth nor a reboot returns it, only a word."""
    faults = [fault(ago(hours=hours)) for hours in (20, 15, 10, 5)]
    assert verdict(sign(94), *faults) == (GpuAction.EVICT, "5 faults in 24 h, the last xid 94")
    assert judge(Fitness(history=tuple(faults)), sign(94), NOW).line.returns_by == (Recovery.OPERATOR,)

    assert verdict(sign(94), *faults[1:])[0] is GpuAction.RESTART
    assert verdict(sign(94), fault(ago(hours=25)), *faults[1:])[0] is GpuAction.RESTART
    assert verdict(sign(94), fault(ago(hours=20), OTHER), *faults[1:])[0] is GpuAction.RESTART
    assert verdict(sign(63), *faults)[0] is GpuAction.LOG


def test_a_burst_is_one_fault() -> None:
    """What follows within a minute, and within a minute of that, is the same incident."""
    burst = [fault(ago(hours=1) + timedelta(seconds=50 * number)) for number in range(6)]
    assert verdict(sign(95), *burst)[0] is GpuAction.RESET
    assert incidents(burst) == 1
    assert incidents([burst[0], fault(burst[0].at, OTHER), burst[1], fault(NOW)]) == 3


def test_a_fault_that_the_breaker_held_back_is_counted_once() -> None:
    """It is in the history already when it is judged again."""
    faults = [fault(ago(hours=hours)) for hours in (20, 15, 10)]
    assert verdict(sign(95, held_back=True), *faults, fault(ago(seconds=90)))[0] is GpuAction.RESET
    assert judge(Fitness(history=(fault(ago(days=1)),)), sign(95, held_back=True), NOW).score == 3


def test_an_applications_error_twice_on_one_gpu_is_the_gpus() -> None:
    """On several GPUs it is the software's, and within a burst it is one."""
    before = fault(ago(hours=3), action=GpuAction.LOG, code=31)
    assert verdict(sign(31), noted=(before,)) == (GpuAction.RESET, "xid 31 twice in 24 h")
    assert verdict(sign(31)) == (GpuAction.LOG, "xid 31")
    for noted in (
        (fault(ago(hours=25), action=GpuAction.LOG, code=31),),
        (fault(ago(seconds=170), action=GpuAction.LOG, code=31),),
        (fault(ago(hours=3), action=GpuAction.LOG, code=13),),
        (fault(ago(hours=3), OTHER, action=GpuAction.LOG, code=31),),
        (before, fault(ago(hours=3), OTHER, action=GpuAction.LOG, code=31)),
    ):
        assert verdict(sign(31), noted=noted)[0] is GpuAction.LOG, noted
    assert verdict(sign(13), noted=(fault(ago(seconds=16), action=GpuAction.LOG, code=13),))[0] is GpuAction.RESET
    assert verdict(sign(43), noted=(fault(ago(hours=3), action=GpuAction.LOG, code=43),))[0] is GpuAction.LOG


def test_what_helped_since_the_sign_leaves_nothing_to_do() -> None:
    """A GPU that was reset before anybody judged it is sound; what does not help against it changes nothing."""
    assert verdict(sign(95, since=(Recovery.RESET,))) == (GpuAction.LOG, "xid 95, reset since")
    assert verdict(sign(79, since=(Recovery.RESET,)))[0] is GpuAction.EVICT
    assert verdict(sign(94, since=(Recovery.OPERATOR,)))[0] is GpuAction.RESTART


def test_a_reset_that_failed_is_graver_than_what_it_was_for() -> None:
    """The next one would fail too."""
    failed = Pending(Position(9), NOW, GPU, GpuSignal.XID, 95, reset_failed=True)
    assert verdict(failed) == (GpuAction.EVICT, "reset failed after xid 95")
    assert Recovery.RESET not in judge(FIT, failed, NOW).line.returns_by


def test_five_times_out_in_a_week_make_a_lemon() -> None:
    """Whichever of its GPUs; not what was only restarted, nor what an operator knew of who used the node again."""
    faults = tuple(fault(ago(days=day), GpuUuid(f"n1-{day}")) for day in (6, 5, 4, 3, 2))
    assert is_lemon(Fitness(history=faults), NOW)
    assert not is_lemon(Fitness(history=faults[1:]), NOW)
    assert not is_lemon(Fitness(history=faults), NOW + timedelta(days=1))
    assert not is_lemon(Fitness(history=faults, undrained_at=ago(days=6)), NOW)
    restarted = fault(ago(days=2), action=GpuAction.RESTART)
    assert not is_lemon(Fitness(history=(*faults[1:], restarted)), NOW)


def test_the_score_weighs_the_faults_of_a_month() -> None:
    """Graver ones more; with the one that is judged."""
    history = (
        fault(ago(days=31)),
        fault(ago(days=29), action=GpuAction.EVICT),
        fault(ago(days=3), OTHER, action=GpuAction.RESTART),
    )
    assert score(Fitness(history=history), NOW) == 9
    assert judge(Fitness(history=history), sign(95), NOW).score == 12
