"""The GPUs that the NVIDIA driver knows, by NVML; what this driver or this model cannot tell is not known, and no error."""

import asyncio
import importlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from agent import procfs
from agent.core.signs import Look, Reading, Xid
from agent.gpus import GPUS_MAX
from agent.kernel_log import KernelLog, device_of, driver_error
from events.base import GpuUuid
from runtime.fault import Fault
from runtime.logging import get_logger

logger = get_logger(__name__)

HINT: Final = "Is the NVIDIA driver installed and loaded? On a machine without GPUs, simulate some."
SOURCE: Final = "nvml"
KERNEL: Final = "kernel"
RESET_WITHIN_S: Final = 120.0
EVENTS_MAX: Final = 1_000  # errors taken in at one look
MESSAGE_MAX: Final = 300


class NvmlGpus:
    """The GPUs of this machine. Raises `Fault` when there is no driver, or none it can use."""

    def __init__(
        self,
        nvml: Any = None,  # noqa: ANN401 - the library's module, which has no types
        *,
        expected: tuple[GpuUuid, ...] = (),
        mark: bytes,
        kernel_log: KernelLog | None = None,
        reset_command: tuple[str, ...] = ("nvidia-smi", "--gpu-reset", "-i"),
    ) -> None:
        """`expected`: what was here before in this boot; of them none goes missing unseen. `mark`: of our processes."""
        nvml = self._nvml = nvml or importlib.import_module("pynvml")
        self._mark = mark
        self._kernel_log = kernel_log or KernelLog()
        self._reset_command = reset_command
        self._handles: dict[GpuUuid, Any] = {}
        self._devices: dict[str, GpuUuid] = {}  # by PCI address
        self._events: Any = None  # where the driver puts errors
        try:
            self._open()
            names = sorted({str(nvml.nvmlDeviceGetName(handle)) for handle in self._handles.values()})
        except nvml.NVMLError as error:
            raise Fault("gpus_unreachable", f"The GPUs cannot be asked: {error}.", HINT) from error
        self.uuids = tuple(dict.fromkeys([*expected, *self._handles]))
        if len(names) != 1 or len(self.uuids) > GPUS_MAX:
            found = f"{len(self.uuids)} GPUs of {' and '.join(names) or 'no'} type"
            raise Fault("gpus_unsuited", f"Found {found}; a node has 1 to {GPUS_MAX} of one type.", HINT)
        self.gpu_type = type_of_name(names[0])

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """Those on which a living process computes. One that the driver cannot answer for counts as held.

        One that is gone does not: nothing computes there any more, and what computed there must be able to end.
        """
        return frozenset(gpu for gpu in among if gpu in self._handles and self._is_busy(self._handles[gpu]))

    async def look(self, since: int) -> Look:
        """What all GPUs show now, and the errors reported since."""
        return await asyncio.to_thread(self._look, since)

    async def reset(self, gpu_uuid: GpuUuid) -> str:
        """The GPU was reset, or why it could not be. Our own hold on the driver is given up for it, and taken again."""
        await asyncio.to_thread(self._close)
        try:
            return await self._run([*self._reset_command, gpu_uuid])
        finally:
            await asyncio.to_thread(self._open_again)

    # The driver, opened and closed

    def _open(self) -> None:
        nvml = self._nvml
        nvml.nvmlInit()
        handles: dict[GpuUuid, Any] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):  # one that has fallen off its bus: the others can be used
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                handles[GpuUuid(_text(nvml.nvmlDeviceGetUUID(handle)))] = handle
        self._handles = handles
        for gpu_uuid, handle in handles.items():
            if (pci := self._ask("nvmlDeviceGetPciInfo", handle)) is not None:
                self._devices[device_of(_text(pci.busId))] = gpu_uuid
        self._events = self._ask("nvmlEventSetCreate")
        for handle in handles.values() if self._events is not None else ():
            self._ask("nvmlDeviceRegisterEvents", handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _close(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            self._ask("nvmlEventSetFree", events)
        self._ask("nvmlShutdown")

    def _open_again(self) -> None:
        try:
            self._open()
        except self._nvml.NVMLError as error:  # no GPU answers from now on, and that is told
            logger.error("driver_lost", error=str(error), hint=HINT)
            self._handles = {}

    # What it tells

    def _look(self, since: int) -> Look:
        readings = {gpu: self._reading(self._handles.get(gpu)) for gpu in self.uuids}
        records = self._kernel_log.after(since)
        kernel = (error for record in records if (error := driver_error(record)) is not None)
        xids = [
            Xid(self._devices[error.pci], error.code, KERNEL, error.message)
            for error in kernel
            if error.pci in self._devices
        ]
        mark = records[-1].sequence if records else since
        return Look(readings=readings, xids=(*xids, *self._reported()), source=SOURCE, mark=mark)

    def _reading(self, handle: Any) -> Reading:  # noqa: ANN401 - the library's own thing
        nvml, ask = self._nvml, self._ask
        if handle is None or not self._answers(handle):
            return Reading(answers=False)
        uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        remapped = ask("nvmlDeviceGetRemappedRows", handle)
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return Reading(
            celsius=ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            hot_c=ask("nvmlDeviceGetTemperatureThreshold", handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            ecc_uncorrectable=ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile),
            remap_pending=bool(remapped[2]) if remapped is not None else None,
            remap_failed=bool(remapped[3]) if remapped is not None else None,
            recovery_action=self._recovery_action(handle),
            clock_reasons=ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) if reasons is None else reasons,
            links=self._links(handle),
            foreign=self._foreign(handle),
        )

    def _answers(self, handle: Any) -> bool:  # noqa: ANN401 - the library's own thing
        """Whether the GPU is there. A driver that does not tell, for whatever other reason, says nothing against it."""
        nvml = self._nvml
        try:
            nvml.nvmlDeviceGetUUID(handle)
            nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        except nvml.NVMLError as error:
            return error.value not in {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_UNKNOWN}
        return True

    def _ask(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - as the library has it
        """What the driver answers; None where it has no answer, or this driver or library has no such function."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _recovery_action(self, handle: Any) -> int | None:  # noqa: ANN401 - the library's own thing
        """What the driver asks for; None where it is older than that."""
        wanted = getattr(self._nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        fields = self._ask("nvmlDeviceGetFieldValues", handle, [wanted]) if wanted is not None else None
        if not fields or fields[0].nvmlReturn != self._nvml.NVML_SUCCESS:
            return None
        return int(fields[0].value.uiVal)

    def _links(self, handle: Any) -> dict[int, bool] | None:  # noqa: ANN401 - the library's own thing
        """The state of those NVLinks that the GPU has."""
        every = range(self._nvml.NVML_NVLINK_MAX_LINKS)
        states = {link: self._ask("nvmlDeviceGetNvLinkState", handle, link) for link in every}
        return {link: bool(state) for link, state in states.items() if state is not None} or None

    def _foreign(self, handle: Any) -> int | None:  # noqa: ANN401 - the library's own thing
        """The first process on the GPU that is neither ours nor below one of ours; 0: there is none."""
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if processes is None:
            return None
        pids = sorted(process.pid for process in processes)
        return next((pid for pid in pids if procfs.is_alive(pid) and not procfs.is_below(pid, self._mark)), 0)

    def _is_busy(self, handle: Any) -> bool:  # noqa: ANN401 - the library's own thing
        nvml = self._nvml
        try:
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError as error:
            return bool(error.value != nvml.NVML_ERROR_GPU_IS_LOST)
        stats = (procfs.stat(process.pid) for process in processes)
        return any(stat is None or stat.state not in "ZX" for stat in stats)  # a pid that we cannot see may live

    def _reported(self) -> Iterable[Xid]:
        """The errors that the driver has put into the set since it was last emptied."""
        nvml, xids = self._nvml, []
        with suppress(nvml.NVMLError):  # none is left: the library calls that a time-out
            for _ in range(EVENTS_MAX if self._events is not None else 0):
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                if (uuid := self._ask("nvmlDeviceGetUUID", event.device)) is not None:  # else the kernel log names it
                    xids.append(Xid(GpuUuid(_text(uuid)), int(event.eventData), SOURCE))
        return xids

    async def _run(self, command: list[str]) -> str:
        """Nothing once the command has succeeded, else what it said."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            return f"{command[0]} cannot be run: {error.strerror}"
        try:
            async with asyncio.timeout(RESET_WITHIN_S):
                output, _ = await process.communicate()
        except TimeoutError:
            return f"{command[0]} did not end within {RESET_WITHIN_S:g} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said = " ".join(output.decode(errors="replace").split())[-MESSAGE_MAX:]
        return "" if process.returncode == 0 else said or f"{command[0]} exited with {process.returncode}"


def type_of_name(name: str) -> str:
    """The type that jobs ask for, from a product name: `NVIDIA H100 80GB HBM3` is `h100-80gb-hbm3`."""
    words = name.lower().replace("nvidia", " ").replace("_", " ").split()
    return "-".join(words)


def _text(value: str | bytes) -> str:
    """What some versions of the library give as bytes."""
    return value.decode() if isinstance(value, bytes) else value
