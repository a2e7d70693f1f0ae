"""Simulated GPUs: the same for ever, held by what runs, and showing what is put into their folder."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from agent.core.signs import Reading, Xid
from agent.injections import FOLDER, STATE, Injection, driver_of, put
from agent.simulated import SOURCE, SimulatedGpus, State
from events.base import NodeId
from events.gpu import GpuSignal
from tests.fixtures.waiting import until

NODE = NodeId("a")


def gpus_of(folder: Path, count: int = 4) -> SimulatedGpus:
    """The GPUs of an agent that has just started."""
    return SimulatedGpus(NODE, count, "h100", folder)


async def reading_of(gpus: SimulatedGpus, number: int = 0) -> Reading:
    """What one GPU shows."""
    return (await gpus.look(0)).readings[gpus.uuids[number]]


def test_simulated_gpus_are_the_same_for_ever(tmp_path: Path) -> None:
    """By node and number, whatever the data directory; those of another node are others."""
    first = gpus_of(tmp_path, 8)

    assert first.uuids == gpus_of(tmp_path / "other", 8).uuids
    assert len({*first.uuids, *SimulatedGpus(NodeId("b"), 8, "h100", tmp_path).uuids}) == 16
    assert first.uuids[0] == "GPU-d7e98967-056f-4828-8b38-8a7930d88594"


async def test_a_simulated_gpu_is_held_while_a_process_of_the_agents_sees_it(tmp_path: Path) -> None:
    """And one of another data directory's that has the same name is not."""
    gpus, others = gpus_of(tmp_path), gpus_of(tmp_path / "other")
    env = {"MUSTER_AGENT_DATA": str(tmp_path), "CUDA_VISIBLE_DEVICES": ",".join(gpus.uuids[1:3])}
    process = subprocess.Popen(["sleep", "60"], env=env | {"PATH": os.environ["PATH"]})  # noqa: ASYNC220 - at once
    try:
        await until(lambda: gpus.busy(frozenset(gpus.uuids)), what="it has its environment")
        assert gpus.busy(frozenset(gpus.uuids)) == set(gpus.uuids[1:3])
        assert gpus.busy(frozenset(gpus.uuids[:2])) == {gpus.uuids[1]}
        assert others.busy(frozenset(others.uuids)) == frozenset()
    finally:
        process.kill()
        process.wait()
    assert gpus.busy(frozenset(gpus.uuids)) == frozenset()


@pytest.mark.parametrize(
    ("signal", "field", "value"),
    [
        (GpuSignal.ECC_UNCORRECTABLE, "ecc_uncorrectable", 1),
        (GpuSignal.REMAP_PENDING, "remap_pending", True),
        (GpuSignal.REMAP_FAILED, "remap_failed", True),
        (GpuSignal.RECOVERY_ACTION, "recovery_action", 1),
        (GpuSignal.THROTTLED, "clock_reasons", 0x40),
        (GpuSignal.HOT, "celsius", 95),
        (GpuSignal.FOREIGN_PROCESS, "foreign", 1),
        (GpuSignal.MISSING, "answers", False),
    ],
)
async def test_every_signal_can_be_injected_and_stays_until_it_is_cleared(
    tmp_path: Path, signal: GpuSignal, field: str, value: object
) -> None:
    """Over restarts of the agent too; the other GPUs are well."""
    well = await reading_of(gpus_of(tmp_path))
    put(tmp_path, Injection(gpu=0, signal=signal), 1.0)
    assert getattr(await reading_of(gpus_of(tmp_path)), field) == value
    assert getattr(await reading_of(gpus_of(tmp_path)), field) == value
    assert await reading_of(gpus_of(tmp_path), 1) == well

    put(tmp_path, Injection(clear=True), 2.0)
    assert await reading_of(gpus_of(tmp_path)) == well


async def test_an_error_is_shown_to_a_look_that_has_not_seen_it(tmp_path: Path) -> None:
    """By the mark of the look before, however often the agent restarts. A GPU off its bus answers no more."""
    gpus = gpus_of(tmp_path)
    put(tmp_path, Injection(gpu=2, signal=GpuSignal.XID, code=13), 1.0)
    put(tmp_path, Injection(gpu=3, signal=GpuSignal.XID, code=79), 2.0)
    first, second = Xid(gpus.uuids[2], 13, SOURCE), Xid(gpus.uuids[3], 79, SOURCE)

    look = await gpus.look(0)

    assert look.xids == (first, second)
    assert not look.readings[gpus.uuids[3]].answers
    assert (await gpus_of(tmp_path).look(1)).xids == (second,)
    assert (await gpus_of(tmp_path).look(look.mark)).xids == ()
    (tmp_path / FOLDER / STATE).unlink()
    put(tmp_path, Injection(gpu=0, signal=GpuSignal.XID, code=13), 3.0)
    assert [xid.code for xid in (await gpus_of(tmp_path).look(look.mark)).xids] == [13]


async def test_a_hot_gpu_is_one_at_the_temperature_that_was_asked_for(tmp_path: Path) -> None:
    """Also where real ones would not be; and of links several may be down."""
    put(tmp_path, Injection(gpu=0, signal=GpuSignal.HOT, code=70), 1.0)
    for place, link in enumerate((3, 40)):
        put(tmp_path, Injection(gpu=0, signal=GpuSignal.NVLINK_DOWN, code=link), 2.0 + place)
    reading = await reading_of(gpus_of(tmp_path))
    assert (reading.celsius, reading.hot_c) == (70, 70)
    assert [link for link, up in (reading.links or {}).items() if not up] == [3, 40]


async def test_a_reset_mends_what_one_would_and_nothing_else(tmp_path: Path) -> None:
    """Not heat, not a row that could not be remapped, not one that wants a reboot; and what is gone cannot be reset."""
    gpus = gpus_of(tmp_path)
    mended = (GpuSignal.REMAP_PENDING, GpuSignal.THROTTLED, GpuSignal.NVLINK_DOWN, GpuSignal.ECC_UNCORRECTABLE)
    for number, signal in enumerate((*mended, GpuSignal.HOT, GpuSignal.REMAP_FAILED)):
        put(tmp_path, Injection(gpu=0, signal=signal), 1.0 + number)
    put(tmp_path, Injection(gpu=1, signal=GpuSignal.RECOVERY_ACTION, code=1), 8.0)
    put(tmp_path, Injection(gpu=2, signal=GpuSignal.RECOVERY_ACTION, code=2), 9.0)
    put(tmp_path, Injection(gpu=3, signal=GpuSignal.XID, code=79), 9.5)
    well = Reading(
        celsius=45,
        hot_c=90,
        ecc_uncorrectable=0,
        remap_pending=False,
        remap_failed=False,
        recovery_action=0,
        clock_reasons=0,
        links=dict.fromkeys(range(18), True),
        foreign=0,
    )
    await gpus.look(0)

    assert [await gpus.reset(uuid) for uuid in gpus.uuids] == ["", "", "", "the GPU is not on its bus"]

    assert await reading_of(gpus) == msgspec.structs.replace(well, celsius=95, remap_failed=True)
    assert await reading_of(gpus, 1) == well
    assert (await reading_of(gpus, 2)).recovery_action == 2
    assert not (await reading_of(gpus, 3)).answers


async def test_a_foreign_process_holds_its_gpu(tmp_path: Path) -> None:
    """As far as the agent can tell."""
    gpus = gpus_of(tmp_path)
    put(tmp_path, Injection(gpu=1, signal=GpuSignal.FOREIGN_PROCESS), 1.0)
    await gpus.look(0)
    assert gpus.busy(frozenset(gpus.uuids)) == {gpus.uuids[1]}
    assert gpus.busy(frozenset(gpus.uuids[2:])) == frozenset()


async def test_another_boot_begins_with_gpus_that_are_well(tmp_path: Path) -> None:
    """What was shown before it is shown no more; and numbers of errors go on, so that none is mistaken for an old one."""
    put(tmp_path, Injection(signal=GpuSignal.XID, code=79), 1.0)
    await gpus_of(tmp_path).look(0)
    file = tmp_path / FOLDER / STATE
    before = msgspec.json.decode(file.read_bytes(), type=State)
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(before, boot_id="another")))

    look = await gpus_of(tmp_path).look(0)

    assert all(reading.answers for reading in look.readings.values())
    assert (look.xids, look.mark) == ((), 4)


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        '{"signal":"tired"}',
        '{"signal":"hot","gpu":4}',
        '{"signal":"hot","gpu":-1}',
        '{"signal":"hot","clear":true}',
        "{}",
        '{"signal":"hot","code":99999999999}',
        '{"signal":"hot","to":1}',
        '{"signal":"hot"' + " " * 5_000 + "}",
    ],
)
async def test_what_is_no_injection_is_moved_aside_and_changes_nothing(tmp_path: Path, text: str) -> None:
    """And what comes after it is taken in."""
    gpus = gpus_of(tmp_path)
    well = await reading_of(gpus)
    (tmp_path / FOLDER / "inject" / "0.json").write_text(text)
    put(tmp_path, Injection(gpu=1, signal=GpuSignal.MISSING), 1.0)

    assert await reading_of(gpus) == well
    assert not (await reading_of(gpus, 1)).answers
    assert [path.name for path in (tmp_path / FOLDER / "refused").iterdir()] == ["0.json"]
    assert list((tmp_path / FOLDER / "inject").iterdir()) == []


async def test_an_injection_is_taken_in_once_wherever_the_agent_was_killed(tmp_path: Path) -> None:
    """After what it shows was kept, and before the file was removed."""
    path = put(tmp_path, Injection(gpu=0, signal=GpuSignal.XID, code=13), 1.0)
    content = path.read_bytes()
    await gpus_of(tmp_path).look(0)
    path.write_bytes(content)
    assert len((await gpus_of(tmp_path).look(0)).xids) == 1


def test_others_can_tell_that_the_gpus_are_simulated(tmp_path: Path) -> None:
    """And how many there are."""
    assert driver_of(tmp_path) is None
    gpus_of(tmp_path, 3)
    driver = driver_of(tmp_path)
    assert driver is not None
    assert driver.count == 3
