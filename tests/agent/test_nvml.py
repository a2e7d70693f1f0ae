"""GPUs by NVML, whose library is played here as a driver makes it answer: its errors and constants are the real ones."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from agent import procfs
from agent.core.signs import Reading, Xid
from agent.kernel_log import KernelLog
from agent.nvml import NvmlGpus, type_of_name
from events.base import GpuUuid
from runtime.fault import Fault
from tests.fixtures.waiting import until

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
MARK = b"MUSTER_AGENT_DATA=/x"
FUNCTIONS: dict[str, Callable[..., Any]] = {  # that tell of one GPU, with what they answer for one that is well
    "nvmlDeviceGetUUID": lambda gpu: gpu.uuid.encode(),
    "nvmlDeviceGetName": lambda _: "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=gpu.pci),
    "nvmlDeviceGetTemperature": lambda _gpu, _sensor: 41,
    "nvmlDeviceGetTemperatureThreshold": lambda _gpu, _kind: 87,
    "nvmlDeviceGetTotalEccErrors": lambda _gpu, _kind, _counter: 3,
    "nvmlDeviceGetRemappedRows": lambda _: (0, 1, 1, 0),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x40,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x08,
    "nvmlDeviceGetNvLinkState": lambda _gpu, link: link != 1 if link < 2 else not_supported(),
    "nvmlDeviceGetFieldValues": lambda _gpu, fields: [field_of(fields[0])],
    "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [SimpleNamespace(pid=pid) for pid in gpu.pids],
    "nvmlDeviceRegisterEvents": lambda _gpu, kinds, _set: None if kinds == pynvml.nvmlEventTypeXidCriticalError else 1,
}


def not_supported() -> bool:
    """As the library says it."""
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def field_of(field: int) -> Any:
    """The driver asks for a reset."""
    value = pynvml.c_nvmlFieldValue_t()
    value.fieldId, value.nvmlReturn, value.value.uiVal = field, pynvml.NVML_SUCCESS, 1
    return value


class Driver:
    """What the library answers. Its constants and errors are those of the real one; a missing function is missing."""

    def __init__(self, *gpus: SimpleNamespace, without: tuple[str, ...] = ()) -> None:
        self.gpus = gpus
        self.without = without
        self.errors: dict[str, int] = {}  # by function: what it raises
        self.lost: set[str] = set()  # GPUs that have fallen off the bus
        self.events: list[tuple[SimpleNamespace, int]] = []
        self.opened = 0
        self.let_go: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        if name in self.without:
            raise AttributeError(name)
        if name in FUNCTIONS:
            return lambda gpu, *rest: self._tell(name, FUNCTIONS[name], gpu, rest)
        assert name.isupper() or name.startswith(("NVML", "nvmlEventType")), name
        return getattr(pynvml, name)

    def _tell(self, name: str, answer: Callable[..., Any], gpu: SimpleNamespace, rest: tuple[Any, ...]) -> Any:
        if gpu.uuid in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if name in self.errors:
            raise pynvml.NVMLError(self.errors[name])
        return answer(gpu, *rest)

    def nvmlInit(self) -> None:  # noqa: N802 - as the library has it
        """Taken hold of."""
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Let go."""
        self.opened -= 1
        self.let_go()

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Also those that are lost."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> SimpleNamespace:  # noqa: N802
        """The GPU itself."""
        if self.gpus[index].uuid in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self.gpus[index]

    def nvmlEventSetCreate(self) -> str:  # noqa: N802
        """Any object."""
        return "events"

    def nvmlEventSetFree(self, _events: str) -> None:  # noqa: N802
        """Gone."""

    def nvmlEventSetWait_v2(self, _events: str, wait_ms: int) -> SimpleNamespace:  # noqa: N802
        """The next one."""
        assert wait_ms == 0
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        gpu, code = self.events.pop(0)
        return SimpleNamespace(device=gpu, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=code)


def gpu_of(uuid: GpuUuid, bus: int) -> SimpleNamespace:
    """One GPU."""
    return SimpleNamespace(uuid=uuid, pci=f"00000000:{bus:02X}:00.0".encode(), pids=[])


def driver_of(**fields: Any) -> Driver:
    """Two GPUs."""
    return Driver(gpu_of(A, 0x3B), gpu_of(B, 0x86), **fields)


def gpus_of(driver: Driver, folder: Path, **fields: Any) -> NvmlGpus:
    """As an agent has them; the kernel log is a file that is not there."""
    return NvmlGpus(driver, mark=MARK, kernel_log=KernelLog(folder / "kmsg"), **fields)


async def test_all_that_a_new_driver_tells_is_read(tmp_path: Path) -> None:
    """As it stands in its answers: bytes, structures, bits, links that the model has."""
    gpus = gpus_of(driver_of(), tmp_path)
    assert (gpus.uuids, gpus.gpu_type) == ((A, B), "h100-80gb-hbm3")
    assert (await gpus.look(0)).readings[A] == Reading(
        celsius=41,
        hot_c=87,
        ecc_uncorrectable=3,
        remap_pending=True,
        remap_failed=False,
        recovery_action=1,
        clock_reasons=0x40,
        links={0: True, 1: False},
        foreign=0,
    )


async def test_what_an_older_driver_or_library_does_not_tell_is_not_known(tmp_path: Path) -> None:
    """Each question on its own: no function, no support, no permission. The old name of throttling is asked for, too."""
    asked = set(FUNCTIONS) - {"nvmlDeviceGetUUID", "nvmlDeviceGetName"}
    for error in (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
    ):
        driver = driver_of()
        driver.errors = dict.fromkeys(asked, error)
        assert (await gpus_of(driver, tmp_path).look(0)).readings[A] == Reading()
    bare = tuple(asked - {"nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons"})
    field = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"
    old = await gpus_of(driver_of(without=(*bare, field)), tmp_path).look(0)
    assert old.readings[A] == Reading(celsius=41, clock_reasons=0x08)


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, False),
        (pynvml.NVML_ERROR_UNKNOWN, False),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, True),
    ],
)
async def test_a_gpu_that_is_lost_does_not_answer(tmp_path: Path, error: int, *, answers: bool) -> None:
    """One that only cannot say how warm it is does."""
    driver = driver_of()
    gpus = gpus_of(driver, tmp_path)
    driver.errors = {"nvmlDeviceGetTemperature": error}
    assert (await gpus.look(0)).readings[B].answers is answers


async def test_errors_come_from_the_driver_and_from_the_kernels_log(tmp_path: Path) -> None:
    """By the PCI address there; one of a device that is none of these GPUs is nobody's."""
    driver = driver_of()
    driver.events = [(driver.gpus[1], 48), (driver.gpus[0], 13)]
    record = "4,41,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    (tmp_path / "kmsg").write_text(record)
    gpus = gpus_of(driver, tmp_path)

    look = await gpus.look(0)

    kernel = Xid(A, 79, "kernel", "pid='<unknown>', GPU has fallen off the bus.")
    assert look.xids == (kernel, Xid(B, 48, "nvml"), Xid(A, 13, "nvml"))
    assert look.mark == 42
    assert (await gpus.look(42)).xids == ()
    (tmp_path / "kmsg").write_text(record.replace("3b", "3c"))
    other = await gpus_of(driver, tmp_path).look(0)
    assert (other.xids, other.mark) == ((), 42)


def test_a_process_holds_its_gpu_and_one_that_is_gone_is_held_by_nobody(tmp_path: Path) -> None:
    """Or what ran on it could never end. Where the driver has no answer, the GPU counts as held."""
    driver = driver_of()
    gpus = gpus_of(driver, tmp_path)
    driver.gpus[0].pids = [os.getpid()]
    both = frozenset({A, B})
    assert gpus.busy(both) == {A}
    driver.errors = {"nvmlDeviceGetComputeRunningProcesses": pynvml.NVML_ERROR_UNKNOWN}
    assert gpus.busy(both) == both
    driver.lost = {A}
    assert gpus.busy(both) == {B}


async def test_a_process_is_foreign_unless_it_descends_from_one_of_ours(tmp_path: Path) -> None:
    """By the mark in the environment that it, or any that it descends from, was started with. A dead one is nobody's."""
    driver = driver_of()
    gpus = gpus_of(driver, tmp_path)
    name, _, value = MARK.decode().partition("=")
    script = "import subprocess; subprocess.run(['sleep', '60'], env={'PATH': '/usr/bin:/bin'})"
    with subprocess.Popen([sys.executable, "-c", script], env={name: value, "PATH": os.environ["PATH"]}) as ours:  # noqa: ASYNC220
        await until(lambda: procfs.descendants({ours.pid}), what="it has a child")
        below = procfs.descendants({ours.pid})
        for pids, foreign in (([below[0], ours.pid], 0), ([ours.pid, os.getpid()], os.getpid()), ([1 << 22], 0)):
            driver.gpus[0].pids = pids
            assert (await gpus.look(0)).readings[A].foreign == foreign
        os.kill(below[0], 9)


async def test_a_gpu_that_was_there_before_goes_missing_and_not_out_of_sight(tmp_path: Path) -> None:
    """The agent restarts while one is off the bus: the node has the same GPUs, and the runs on the others live on."""
    driver = driver_of()
    driver.lost = {A}
    gpus = gpus_of(driver, tmp_path, expected=(A, B))
    assert gpus.uuids == (A, B)
    readings = (await gpus.look(0)).readings
    assert (readings[A].answers, readings[B].answers) == (False, True)
    assert gpus.busy(frozenset({A})) == frozenset()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("true",), ""),
        (("sh", "-c", "echo 'GPU is in use'; exit 1"), "GPU is in use"),
        (("false",), "false exited with 1"),
        (("no-such-command",), "no-such-command cannot be run: No such file or directory"),
    ],
)
async def test_a_reset_is_the_drivers_command_while_we_do_not_hold_the_gpu_ourselves(
    tmp_path: Path, command: tuple[str, ...], said: str
) -> None:
    """What it says when it fails is passed on; afterwards the GPUs are asked as before."""
    driver = driver_of()
    gpus = gpus_of(driver, tmp_path, reset_command=command)
    assert driver.opened == 1
    assert await gpus.reset(A) == said
    assert driver.opened == 1
    assert (await gpus.look(0)).readings[A].answers


async def test_the_hold_on_the_driver_is_given_up_for_a_reset(tmp_path: Path) -> None:
    """It refuses otherwise: the command sees that, and is given the GPU's own name."""
    driver = driver_of()
    held: list[int] = []
    driver.let_go = lambda: held.append(driver.opened)
    gpus = gpus_of(driver, tmp_path, reset_command=("sh", "-c", f'echo "$1" > {tmp_path}/asked', "reset"))
    assert await gpus.reset(B) == ""
    assert held == [0]
    assert (tmp_path / "asked").read_text() == f"{B}\n"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_without_a_driver_it_is_said_what_is_missing() -> None:
    """A code, a sentence and a hint, instead of an error number."""
    with pytest.raises(Fault, match="cannot be asked") as raised:
        NvmlGpus(mark=MARK)

    assert raised.value.code == "gpus_unreachable"
    assert "driver" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "gpu_type"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("Tesla T4", "tesla-t4"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
    ],
)
def test_a_type_is_the_product_without_its_maker(name: str, gpu_type: str) -> None:
    """What jobs ask for."""
    assert type_of_name(name) == gpu_type


def test_the_library_has_all_that_it_is_asked_for() -> None:
    """What is played here is there in the real one, under the same name."""
    played = [*FUNCTIONS, *(name for name in vars(Driver) if name.startswith("nvml"))]
    assert [name for name in played if not callable(getattr(pynvml, name, None))] == []
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
