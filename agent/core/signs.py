"""What GPUs show, and what of it is news: a look is compared with what was known before, and changes come out."""

from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from events.base import GpuUuid
from events.gpu import GpuSignal, Recovery

HOT_C: Final = 90  # from here on a GPU is hot whose driver names no temperature at which it slows down
COOLER_C: Final = 5  # below that it is hot no more
HELD_DOWN: Final = 0x08 | 0x40 | 0x80  # of NVML's clock event reasons: slowed down by hardware, its heat, its power
BURST_S: Final = 15.0  # the same XID of the same GPU within this time of the last one is the same event
ACTION_CHANGED: Final = 154  # the XID by which the driver asks for something, or withdraws it
WITHDRAWN: Final = "to 0x0 (None)"  # in its message


class Watch(NamedTuple):
    """How long something has to be seen: in looks one after the other."""

    begins: int = 1  # that show it, until that is told
    ends: int = 1  # that do not


WATCHES: Final = {
    GpuSignal.MISSING: Watch(begins=2),  # one call that fails is none
    GpuSignal.RECOVERY_ACTION: Watch(),
    GpuSignal.REMAP_FAILED: Watch(),
    GpuSignal.REMAP_PENDING: Watch(),
    GpuSignal.NVLINK_DOWN: Watch(begins=2, ends=2),
    GpuSignal.HOT: Watch(begins=3, ends=3),
    GpuSignal.THROTTLED: Watch(begins=6, ends=6),  # a peak of a moment is what the hardware is built for
    GpuSignal.FOREIGN_PROCESS: Watch(begins=3),
}


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver says of one GPU now. None: not known, since this driver or this model does not tell."""

    answers: bool = True
    celsius: int | None = None
    hot_c: int | None = None  # where the driver slows it down for its heat
    ecc_uncorrectable: int | None = None  # since the driver was loaded or the GPU reset
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None
    clock_reasons: int | None = None  # NVML's bits
    links: dict[int, bool] | None = None  # whether each NVLink that it has is up
    foreign: int | None = None  # a process of no run that holds it; 0: there is none


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver reported."""

    gpu_uuid: GpuUuid
    code: int
    source: str
    message: str = ""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs of a node at one time, and the errors since the look before."""

    readings: dict[GpuUuid, Reading]
    xids: tuple[Xid, ...] = ()
    source: str = ""  # of the readings
    mark: int = 0  # how far errors were read: the next look goes on from here


class Sign(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """To be told: a GPU shows something, or no longer does."""

    gpu_uuid: GpuUuid
    signal: GpuSignal
    code: int = 0
    ended: bool = False
    source: str = ""
    message: str = ""


class Recovered(msgspec.Struct, frozen=True, tag=True):
    """To be told: something was done about a GPU."""

    gpu_uuid: GpuUuid
    means: Recovery


class ResetFailed(msgspec.Struct, frozen=True, tag=True):
    """To be told: a GPU could not be reset."""

    gpu_uuid: GpuUuid
    message: str


Word = Sign | Recovered | ResetFailed


class Telling(msgspec.Struct, frozen=True):
    """A word that is kept until the gate has accepted it."""

    number: int  # in the order of all
    at: datetime
    word: Word


class Lasting(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is or was seen of a GPU for a while."""

    signal: GpuSignal
    which: int = 0  # of what there may be several: the link, the action that is asked for
    code: int = 0  # as it began
    told: bool = False
    looks: int = 0  # the last ones in a row that say otherwise than what was told


class Known(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen of one GPU so far, in this boot and since its last reset."""

    lasting: tuple[Lasting, ...] = ()
    ecc_uncorrectable: int = 0  # told
    xids: dict[int, float] = {}  # when each was last seen, on the machine's monotonic clock

    @property
    def missing(self) -> bool:
        """Whether it was told that the GPU does not answer."""
        return any(one.signal is GpuSignal.MISSING and one.told for one in self.lasting)


NOTHING: Final = Known()


def compare(known: dict[GpuUuid, Known], look: Look, now_s: float) -> tuple[dict[GpuUuid, Known], list[Word]]:
    """What is known after `look`, and what of it is news, GPU by GPU."""
    after: dict[GpuUuid, Known] = {}
    words: list[Word] = []
    for gpu_uuid, reading in look.readings.items():
        before = known.get(gpu_uuid, NOTHING)
        xids, news = _new_xids(before, [xid for xid in look.xids if xid.gpu_uuid == gpu_uuid], now_s)
        lasting, changes = _changes(gpu_uuid, before.lasting, reading, look.source)
        ecc = before.ecc_uncorrectable if reading.ecc_uncorrectable is None else reading.ecc_uncorrectable
        if new := ecc - (before.ecc_uncorrectable if ecc >= before.ecc_uncorrectable else 0):  # else it began anew
            news.append(Sign(gpu_uuid=gpu_uuid, signal=GpuSignal.ECC_UNCORRECTABLE, code=new, source=look.source))
        after[gpu_uuid] = Known(lasting=lasting, ecc_uncorrectable=ecc, xids=xids)
        words += [*news, *changes]
    return after, words


def in_new_life(known: Known) -> Known:
    """What is known when a new life of the node begins: what is still seen is told again, for nobody knows it of that life."""
    return replace(known, lasting=tuple(replace(one, told=False, looks=0) for one in known.lasting))


def after_reset(reading: Reading) -> Known:
    """What is known of a GPU that was reset: nothing, so that whatever it shows still is told again."""
    return Known(ecc_uncorrectable=reading.ecc_uncorrectable or 0)


def trouble(reading: Reading) -> str:
    """Why a GPU is not as it should be after a reset; nothing where it is."""
    if not reading.answers:
        return "it does not answer"
    if reading.recovery_action:
        return f"the driver still asks for recovery action {reading.recovery_action}"
    if reading.remap_failed:
        return "remapping a row of its memory has failed"
    return "a row of its memory still waits to be remapped" if reading.remap_pending else ""


def shown(reading: Reading) -> dict[GpuSignal, dict[int, int]]:
    """What a reading shows, each signal with its codes by `Lasting.which`. Signals of which it tells nothing are left out."""
    if not reading.answers:
        return {GpuSignal.MISSING: {0: 0}}
    told: dict[GpuSignal, dict[int, int]] = {GpuSignal.MISSING: {}}
    for signal, flag in (
        (GpuSignal.REMAP_PENDING, reading.remap_pending),
        (GpuSignal.REMAP_FAILED, reading.remap_failed),
    ):
        if flag is not None:
            told[signal] = {0: 0} if flag else {}
    if (action := reading.recovery_action) is not None:
        told[GpuSignal.RECOVERY_ACTION] = {action: action} if action else {}
    if (reasons := reading.clock_reasons) is not None:
        told[GpuSignal.THROTTLED] = {0: reasons & HELD_DOWN} if reasons & HELD_DOWN else {}
    if (celsius := reading.celsius) is not None:
        hot_c = reading.hot_c or HOT_C
        if celsius >= hot_c or celsius < hot_c - COOLER_C:  # in between it stays what it was
            told[GpuSignal.HOT] = {0: celsius} if celsius >= hot_c else {}
    if reading.links is not None:
        told[GpuSignal.NVLINK_DOWN] = {link: link for link, up in sorted(reading.links.items()) if not up}
    if reading.foreign is not None:
        told[GpuSignal.FOREIGN_PROCESS] = {0: reading.foreign} if reading.foreign else {}
    return told


def _changes(
    gpu_uuid: GpuUuid, before: tuple[Lasting, ...], reading: Reading, source: str
) -> tuple[tuple[Lasting, ...], list[Word]]:
    """What is seen of one GPU for a while, and what of that has begun or ended."""
    seen = shown(reading)
    known = {(one.signal, one.which): one for one in before}
    new = [(signal, which) for signal, codes in seen.items() for which in codes if (signal, which) not in known]
    after: list[Lasting] = []
    words: list[Word] = []
    for signal, which in [*known, *new]:
        one = known.get((signal, which), Lasting(signal, which))
        if signal not in seen:
            after.append(one)
            continue
        code = seen[signal].get(which)
        one = _looked(one, code)
        if one.looks >= (WATCHES[signal].ends if one.told else WATCHES[signal].begins):
            one = replace(one, told=not one.told, looks=0)
            words.append(
                Sign(gpu_uuid=gpu_uuid, signal=signal, code=one.code, ended=not one.told, source=source),
            )
            if signal is GpuSignal.RECOVERY_ACTION and not one.told and not seen[signal]:
                words.append(Recovered(gpu_uuid, Recovery.DRIVER))
        if one.told or one.looks:
            after.append(one)
    return tuple(after), words


def _looked(one: Lasting, code: int | None) -> Lasting:
    """After one look more that shows it with `code`, or does not."""
    if one.told:
        return replace(one, looks=one.looks + 1 if code is None else 0)
    return replace(one, looks=0) if code is None else replace(one, looks=one.looks + 1, code=code)


def _new_xids(before: Known, xids: list[Xid], now_s: float) -> tuple[dict[int, float], list[Word]]:
    """Of a burst, or of one error that came by two ways, the first is told."""
    last = {code: at_s for code, at_s in before.xids.items() if now_s - at_s < BURST_S}
    words: list[Word] = []
    for xid in xids:
        if xid.code == ACTION_CHANGED:
            if WITHDRAWN in xid.message:
                words.append(Recovered(xid.gpu_uuid, Recovery.DRIVER))
                continue
            if not xid.message:  # what is asked for, only the reading says then
                continue
        if xid.code not in last:
            words.append(
                Sign(
                    gpu_uuid=xid.gpu_uuid,
                    signal=GpuSignal.XID,
                    code=xid.code,
                    source=xid.source,
                    message=xid.message,
                )
            )
        last[xid.code] = now_s
    return last, words
