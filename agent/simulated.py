"""GPUs that any machine can have: they exist in name, are held by what sees them, and show what they are told to show."""

import asyncio
import hashlib
import uuid
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from agent import procfs
from agent.core.signs import HOT_C, Look, Reading, Xid
from agent.environment import DATA_MARK
from agent.gpus import GPUS_MAX
from agent.injections import CODES, FOLDER, STATE, Injection, waiting
from events.base import GpuUuid, NodeId
from events.gpu import GpuSignal
from runtime.files import write
from runtime.logging import get_logger

logger = get_logger(__name__)

SOURCE: Final = "injected"
RESET_S: Final = 0.2
ERRORS_MAX: Final = 256  # that are kept for a look to come
APPLIED_MAX: Final = 256  # injections that are known to have been taken in
LINKS: Final = 18  # NVLinks of each
CELSIUS: Final = 45  # of a GPU that nothing was done to
GONE: Final = 79  # the XID of a GPU that has fallen off its bus
RESETS: Final = frozenset({1, 4})  # recovery actions that a reset does
MENDED: Final = frozenset({GpuSignal.REMAP_PENDING, GpuSignal.THROTTLED, GpuSignal.NVLINK_DOWN})  # by a reset


class Condition(msgspec.Struct, frozen=True):
    """Something that a GPU shows until it is mended."""

    signal: GpuSignal
    code: int


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated GPU."""

    conditions: tuple[Condition, ...] = ()
    ecc_uncorrectable: int = 0


class Error(msgspec.Struct, frozen=True):
    """An XID, by its number in the order of all."""

    number: int
    gpu: int
    code: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver keeps. Another boot begins with GPUs that are well."""

    count: int
    boot_id: str
    gpus: dict[int, Simulated] = {}
    errors: tuple[Error, ...] = ()
    numbered: int = 0  # errors, ever
    applied: tuple[str, ...] = ()  # the files last taken in


class SimulatedGpus:
    """GPUs of which one is held by each process of this agent's that has it in CUDA_VISIBLE_DEVICES."""

    def __init__(self, node_id: NodeId, count: int, gpu_type: str, data_dir: Path) -> None:
        assert 0 < count <= GPUS_MAX
        self.gpu_type = gpu_type
        self.uuids = tuple(_simulated_uuid(node_id, number) for number in range(count))
        self._mark = f"{DATA_MARK}={data_dir.absolute()}".encode()
        self._data_dir = data_dir
        for name in ("inject", "refused"):
            (data_dir / FOLDER / name).mkdir(parents=True, exist_ok=True)
        self._state = self._kept()
        self._keep(self._state)

    def busy(self, among: frozenset[GpuUuid]) -> frozenset[GpuUuid]:
        """Those that are visible to a living process. Another data directory's GPUs of the same name are others."""
        if not among:
            return among
        held = (env.get(b"CUDA_VISIBLE_DEVICES", b"") for _, env in procfs.marked(self._mark))
        named = {GpuUuid(name) for names in held for name in names.decode().split(",")}
        return among & (named | {uuid for number, uuid in enumerate(self.uuids) if self._foreign(number)})

    async def look(self, since: int) -> Look:
        """What was injected is taken in, and shown."""
        state = self._taken_in()
        after = since if since <= state.numbered else 0  # somebody has removed what was kept
        return Look(
            readings={uuid: self._reading(number) for number, uuid in enumerate(self.uuids)},
            xids=tuple(Xid(self.uuids[one.gpu], one.code, SOURCE) for one in state.errors if one.number > after),
            source=SOURCE,
            mark=state.numbered,
        )

    async def reset(self, gpu_uuid: GpuUuid) -> str:
        """What a reset mends is gone. One that does not answer cannot be reset."""
        await asyncio.sleep(RESET_S)
        number = self.uuids.index(gpu_uuid)
        gpu = self._state.gpus.get(number, Simulated())
        if any(one.signal is GpuSignal.MISSING for one in gpu.conditions):
            return "the GPU is not on its bus"
        left = tuple(one for one in gpu.conditions if not _is_mended(one))
        self._keep(_with(self._state, number, Simulated(conditions=left)))
        return ""

    def _foreign(self, number: int) -> int:
        return self._code(number, GpuSignal.FOREIGN_PROCESS) or 0

    def _code(self, number: int, signal: GpuSignal) -> int | None:
        gpu = self._state.gpus.get(number, Simulated())
        return next((one.code for one in gpu.conditions if one.signal is signal), None)

    def _reading(self, number: int) -> Reading:
        codes = {signal: self._code(number, signal) for signal in GpuSignal}
        if codes[GpuSignal.MISSING] is not None:
            return Reading(answers=False)
        gpu = self._state.gpus.get(number, Simulated())
        down = {one.code for one in gpu.conditions if one.signal is GpuSignal.NVLINK_DOWN}
        hot = codes[GpuSignal.HOT]
        return Reading(
            celsius=hot if hot is not None else CELSIUS,
            hot_c=min(HOT_C, hot) if hot is not None else HOT_C,
            ecc_uncorrectable=gpu.ecc_uncorrectable,
            remap_pending=codes[GpuSignal.REMAP_PENDING] is not None,
            remap_failed=codes[GpuSignal.REMAP_FAILED] is not None,
            recovery_action=codes[GpuSignal.RECOVERY_ACTION] or 0,
            clock_reasons=codes[GpuSignal.THROTTLED] or 0,
            links={link: link not in down for link in {*range(LINKS), *down}},
            foreign=self._foreign(number),
        )

    def _taken_in(self) -> State:
        for path, injection in waiting(self._data_dir, len(self.uuids)):
            if path.name not in self._state.applied:
                state = _injected(self._state, injection)
                self._keep(replace(state, applied=(*state.applied, path.name)[-APPLIED_MAX:]))
                logger.info("injected", **msgspec.to_builtins(injection))
            path.unlink()
        return self._state

    def _kept(self) -> State:
        fresh = State(count=len(self.uuids), boot_id=procfs.boot_id())
        try:
            kept = msgspec.json.decode((self._data_dir / FOLDER / STATE).read_bytes(), type=State)
        except FileNotFoundError:
            return fresh
        except msgspec.DecodeError as error:
            logger.warning("simulated_state_unreadable", error=str(error), hint="The GPUs begin anew, and are well.")
            return fresh
        if kept.boot_id != fresh.boot_id:
            return replace(fresh, numbered=kept.numbered, applied=kept.applied)
        errors = tuple(one for one in kept.errors if one.gpu < fresh.count)
        return replace(kept, count=fresh.count, errors=errors)

    def _keep(self, state: State) -> None:
        self._state = state
        write(self._data_dir / FOLDER / STATE, msgspec.json.encode(state))


def _injected(state: State, injection: Injection) -> State:
    """What the GPUs are after an injection."""
    for number in range(state.count) if injection.gpu is None else (injection.gpu,):
        gpu, signal = state.gpus.get(number, Simulated()), injection.signal
        if signal is None:
            state = _with(state, number, Simulated())
            continue
        code = injection.code or CODES.get(signal, 0)
        match signal:
            case GpuSignal.XID:
                error = Error(state.numbered + 1, number, code)
                state = replace(state, errors=(*state.errors, error)[-ERRORS_MAX:], numbered=error.number)
                if code == GONE:
                    state = _with(state, number, _showing(gpu, Condition(GpuSignal.MISSING, 0)))
            case GpuSignal.ECC_UNCORRECTABLE:
                state = _with(state, number, replace(gpu, ecc_uncorrectable=gpu.ecc_uncorrectable + code))
            case _:
                state = _with(state, number, _showing(gpu, Condition(signal, code)))
    return state


def _showing(gpu: Simulated, new: Condition) -> Simulated:
    """One of each signal, but any number of links that are down."""
    many = new.signal is GpuSignal.NVLINK_DOWN
    kept = (one for one in gpu.conditions if one.signal is not new.signal or (many and one.code != new.code))
    return replace(gpu, conditions=(*kept, new))


def _with(state: State, number: int, gpu: Simulated) -> State:
    return replace(state, gpus=state.gpus | {number: gpu})


def _is_mended(one: Condition) -> bool:
    return one.signal in MENDED or (one.signal is GpuSignal.RECOVERY_ACTION and one.code in RESETS)


def _simulated_uuid(node_id: NodeId, number: int) -> GpuUuid:
    """The same for ever for a number on a node."""
    digest = hashlib.sha256(f"{node_id}/{number}".encode()).digest()
    return GpuUuid(f"GPU-{uuid.UUID(bytes=digest[:16], version=4)}")
