"""What of all that GPUs show is news: what begins, what ends, what comes in bursts, what is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.core.signs import (
    BURST_S,
    NOTHING,
    WATCHES,
    Known,
    Look,
    Reading,
    Recovered,
    Sign,
    Word,
    Xid,
    after_reset,
    compare,
    in_new_life,
    trouble,
)
from events.base import GpuUuid
from events.gpu import GpuSignal, Recovery

GPU = GpuUuid("GPU-0")
WELL = Reading(
    celsius=40,
    hot_c=90,
    ecc_uncorrectable=0,
    remap_pending=False,
    remap_failed=False,
    recovery_action=0,
    clock_reasons=1,
    links={0: True, 1: True},
    foreign=0,
)
SHOWN = {  # what shows each sign that lasts, and its code
    GpuSignal.MISSING: (Reading(answers=False), 0),
    GpuSignal.RECOVERY_ACTION: (replace(WELL, recovery_action=2), 2),
    GpuSignal.REMAP_FAILED: (replace(WELL, remap_failed=True), 0),
    GpuSignal.REMAP_PENDING: (replace(WELL, remap_pending=True), 0),
    GpuSignal.NVLINK_DOWN: (replace(WELL, links={0: True, 1: False}), 1),
    GpuSignal.HOT: (replace(WELL, celsius=93), 93),
    GpuSignal.THROTTLED: (replace(WELL, clock_reasons=0x48 | 0x04), 0x48),
    GpuSignal.FOREIGN_PROCESS: (replace(WELL, foreign=77), 77),
}


def sign(signal: GpuSignal, code: int = 0, **fields: object) -> Sign:
    """Told of the GPU by its driver."""
    return replace(Sign(gpu_uuid=GPU, signal=signal, code=code, source="nvml"), **fields)


class Watched:
    """One GPU that is looked at every second."""

    def __init__(self) -> None:
        self.known: dict[GpuUuid, Known] = {}
        self.now_s = 100.0

    def look(self, reading: Reading, *xids: Xid) -> list[Word]:
        """What was news in a look."""
        self.now_s += 1.0
        self.known, words = compare(self.known, Look(readings={GPU: reading}, xids=xids, source="nvml"), self.now_s)
        return words

    def looks(self, reading: Reading, number: int) -> list[Word]:
        """What was news in so many looks, all with the same result."""
        return [word for _ in range(number) for word in self.look(reading)]


@pytest.mark.parametrize("signal", WATCHES)
def test_a_sign_that_lasts_is_told_once_when_it_has_lasted_and_once_when_it_is_gone(signal: GpuSignal) -> None:
    """Neither a moment of it, nor of its absence, is news."""
    gpu, (reading, code), watch = Watched(), SHOWN[signal], WATCHES[signal]
    assert gpu.looks(WELL, 3) == []
    assert gpu.looks(reading, watch.begins - 1) == []
    assert gpu.looks(WELL, 1) == []
    assert gpu.looks(reading, watch.begins) == [sign(signal, code)]
    assert gpu.looks(reading, 20) == []
    assert gpu.looks(WELL, watch.ends - 1) == []
    assert gpu.looks(reading, 1) == []

    ended = gpu.looks(WELL, watch.ends + 20)

    recovered = [Recovered(GPU, Recovery.DRIVER)] if signal is GpuSignal.RECOVERY_ACTION else []
    assert ended == [sign(signal, code, ended=True), *recovered]


def test_every_signal_has_its_way_of_being_told() -> None:
    """Those of a moment as they come; all others by a table."""
    assert WATCHES.keys() | {GpuSignal.XID, GpuSignal.ECC_UNCORRECTABLE} == set(GpuSignal)


def test_what_a_driver_does_not_tell_is_no_news() -> None:
    """Neither a sign of trouble nor the end of one: an older driver, and a GPU that has gone missing, say nothing."""
    gpu = Watched()
    assert gpu.looks(Reading(), 10) == []
    gpu.looks(replace(WELL, recovery_action=1, remap_failed=True), 1)
    assert gpu.looks(Reading(), 10) == []
    assert gpu.looks(Reading(answers=False), 10) == [sign(GpuSignal.MISSING)]
    assert gpu.known[GPU].missing


def test_a_driver_that_asks_for_something_else_withdraws_nothing() -> None:
    """Only when it asks for nothing any more."""
    gpu = Watched()
    gpu.look(replace(WELL, recovery_action=1))
    action = GpuSignal.RECOVERY_ACTION
    assert gpu.look(replace(WELL, recovery_action=2)) == [sign(action, 1, ended=True), sign(action, 2)]
    assert gpu.look(WELL)[-1] == Recovered(GPU, Recovery.DRIVER)


def test_a_gpu_cools_down_by_more_than_a_degree() -> None:
    """At the edge it is what it was before."""
    gpu = Watched()
    gpu.looks(replace(WELL, celsius=90), 3)
    assert gpu.looks(replace(WELL, celsius=89), 10) == []
    assert gpu.looks(replace(WELL, celsius=84), 3) == [sign(GpuSignal.HOT, 90, ended=True)]
    assert gpu.looks(replace(WELL, celsius=89), 10) == []
    assert gpu.looks(replace(WELL, celsius=94, hot_c=None), 3) == [sign(GpuSignal.HOT, 94)]


def test_memory_errors_are_told_as_they_come_each_once() -> None:
    """A counter that has begun anew counts from nothing; what came before the first look was told by nobody."""
    gpu = Watched()
    ecc = GpuSignal.ECC_UNCORRECTABLE
    assert gpu.look(replace(WELL, ecc_uncorrectable=2)) == [sign(ecc, 2)]
    assert gpu.look(replace(WELL, ecc_uncorrectable=2)) == []
    assert gpu.look(replace(WELL, ecc_uncorrectable=5)) == [sign(ecc, 3)]
    assert gpu.look(replace(WELL, ecc_uncorrectable=None)) == []
    assert gpu.look(replace(WELL, ecc_uncorrectable=1)) == [sign(ecc, 1)]


def test_of_a_burst_of_errors_or_of_one_that_came_by_two_ways_the_first_is_told() -> None:
    """Another code is another error; the same one after some quiet is a new one."""
    gpu = Watched()
    told = Xid(GPU, 79, "kernel", "GPU has fallen off the bus.")
    first = sign(GpuSignal.XID, 79, source="kernel", message="GPU has fallen off the bus.")
    assert gpu.look(WELL, told, Xid(GPU, 79, "nvml"), Xid(GPU, 48, "nvml")) == [first, sign(GpuSignal.XID, 48)]
    gpu.now_s += BURST_S / 2
    assert gpu.look(WELL, Xid(GPU, 79, "nvml")) == []
    gpu.now_s += BURST_S / 2
    assert gpu.look(WELL, Xid(GPU, 79, "nvml")) == []
    gpu.now_s += BURST_S
    assert gpu.look(WELL, Xid(GPU, 79, "nvml")) == [sign(GpuSignal.XID, 79)]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", [Recovered(GPU, Recovery.DRIVER)]),
        ("", []),  # from NVML: what is asked for now, the reading says
    ],
)
def test_a_driver_may_withdraw_by_an_error_report(message: str, words: list[Word]) -> None:
    """XID 154 says what changed: to nothing is good news."""
    assert Watched().look(WELL, Xid(GPU, 154, "kernel", message)) == words


def test_an_error_report_that_asks_for_something_is_a_sign() -> None:
    """`(None)` is what was asked for before."""
    message = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    assert Watched().look(WELL, Xid(GPU, 154, "kernel", message)) == [
        sign(GpuSignal.XID, 154, source="kernel", message=message)
    ]


def test_after_a_reset_and_in_a_new_life_what_is_still_seen_is_told_again() -> None:
    """The GPU returns by a reset: what it did not mend takes it out anew. A new life has been told of nothing."""
    gpu = Watched()
    bad = replace(WELL, links={0: False}, ecc_uncorrectable=3)
    gpu.looks(bad, 2)
    gpu.known[GPU] = after_reset(bad)
    assert gpu.looks(bad, 9) == [sign(GpuSignal.NVLINK_DOWN)]
    gpu.known[GPU] = in_new_life(gpu.known[GPU])
    assert gpu.looks(bad, 9) == [sign(GpuSignal.NVLINK_DOWN)]


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (WELL, ""),
        (Reading(), ""),
        (replace(WELL, celsius=99), ""),
        (Reading(answers=False), "it does not answer"),
        (replace(WELL, recovery_action=2), "the driver still asks for recovery action 2"),
        (replace(WELL, remap_failed=True), "remapping a row of its memory has failed"),
        (replace(WELL, remap_pending=True), "a row of its memory still waits to be remapped"),
    ],
)
def test_a_gpu_that_was_reset_is_as_it_should_be_or_it_is_said_why_not(reading: Reading, said: str) -> None:
    """What a reset is for is gone, and the GPU answers."""
    assert trouble(reading) == said


readings = st.sampled_from([WELL, Reading(), *(reading for reading, _ in SHOWN.values())])


@given(st.lists(readings, max_size=60))
def test_whatever_is_seen_begins_and_ends_in_turn(seen: list[Reading]) -> None:
    """So that whoever counts what has begun and not ended knows what is: in a row of quiet looks, nothing."""
    gpu = Watched()
    words = [word for reading in seen for word in gpu.look(reading)] + gpu.looks(WELL, 20)

    lasting = [word for word in words if isinstance(word, Sign)]
    for signal in GpuSignal:
        for code in {one.code for one in lasting if one.signal is signal}:
            said = [one.ended for one in lasting if (one.signal, one.code) == (signal, code)]
            assert said == [False, True] * (len(said) // 2)
    assert gpu.known == {GPU: NOTHING}
