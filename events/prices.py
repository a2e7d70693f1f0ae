"""The prices family (`prices`, one literal subject): what a GPU-hour costs, each event the whole document."""

from typing import ClassVar

import msgspec

from events.base import PRICES, Count, Family, MicroCount, Moment, StandingDocument
from events.job import Priority


class GpuPrice(msgspec.Struct, frozen=True):
    """What an hour of one GPU costs."""

    gpu_type: str  # empty: every type that the list does not name
    micro_per_gpu_hour: MicroCount


class ClassFactor(msgspec.Struct, frozen=True):
    """What the price is multiplied by for one priority class."""

    priority: Priority
    milli: Count  # 1,500: one and a half


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """Prices that hold from a time on, until the next list does."""

    effective_from: Moment | None = None  # None: from the beginning
    prices: tuple[GpuPrice, ...] = ()  # types differ; one that is in no entry has no price
    factors: tuple[ClassFactor, ...] = ()  # classes differ; one that is in no entry: 1,000
    step_s: Count = 1  # a GPU's time is counted in whole steps, begun ones whole; 0: to the microsecond


class PricesSet(StandingDocument, kw_only=True, frozen=True, tag="musterbook.prices.set.v1"):
    """From here on runs are priced by these lists. Replaces the document before, whole.

    What is reserved keeps its price: that is written into the reservation.
    """

    family: ClassVar[Family] = PRICES

    lists: tuple[PriceList, ...] = ()  # ordered by `effective_from`
