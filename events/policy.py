"""The policy family (`policy`, one literal subject): what the control plane obeys, each event the whole document."""

from enum import StrEnum
from typing import ClassVar

from events.base import POLICY, Count, Family, Seconds, StandingDocument


class PlacePolicy(StrEnum):
    """Which of the nodes that hold a job gets it."""

    BEST_FIT = "best-fit"  # the fullest; whole nodes stay whole
    FIRST_FIT = "first-fit"  # the first by name
    SPREAD = "spread"  # the emptiest


class JobOrder(StrEnum):
    """Which waiting job is tried first."""

    FAIR = (
        "fair"  # within its team's share before beyond it, then priority class, then the team with the least, then age
    )
    PRIORITY = "priority"  # priority class, then age
    FIFO = "fifo"  # age
    SJF = "sjf"  # the shortest declared runtime, then age; those without one last


class Overrun(StrEnum):
    """What becomes of a run that reaches its declared runtime."""

    KILL = "kill"
    EXTEND = "extend"  # it runs on, and promises that counted on its end slip


class Consolidation(StrEnum):
    """What is done when the free GPUs would hold a gang but are scattered."""

    OFF = "off"
    PROPOSE = "propose"  # the moves that would make room are written down
    DO = "do"  # they are made


class ChargeFrom(StrEnum):
    """From when on a run is charged, until its GPUs were released."""

    PLACED = "placed"
    STARTED = "started"  # the last of its shares was reported started; one that never is costs nothing


class Waived(StrEnum):
    """How much of a run is not charged when it ended through no fault of its user."""

    ALL = "all"
    LOST = "lost"  # what it did since its last checkpoint
    NONE = "none"


class Bearer(StrEnum):
    """Who bears what was used beyond what was reserved."""

    PROVIDER = "provider"
    ACCOUNT = "account"


class PolicySet(StandingDocument, kw_only=True, frozen=True, tag="musterbook.policy.set.v1"):
    """From here on the control plane decides by this policy. Replaces the one before, whole."""

    family: ClassVar[Family] = POLICY

    suspect_after_s: Seconds = 30.0  # silence after which nothing new is placed on a node
    lost_after_s: Seconds = 90.0  # the least silence after which a node is declared lost; more than suspect_after_s
    lost_most_s: Seconds = 900.0  # the most, however much a restart would cost; less than lost_after_s counts as that
    restart_s: Count = 120  # what a run that starts again is taken to need until it goes on
    silent_percent: Count = 25  # of the nodes: as many silent at once make the network suspect, not the nodes; 0: never
    placement: PlacePolicy = PlacePolicy.BEST_FIT
    order: JobOrder = JobOrder.FAIR
    blocking: bool = False  # a job that cannot start holds up all behind it that want the same GPU type
    promises: Count = 1  # gangs that may hold a promise at once; 0: none, 1: EASY, many: conservative
    overrun: Overrun = Overrun.KILL
    preemption: bool = True
    min_runtime_s: Count = 60  # a run is left alone for so long
    evictions_max: Count = 3  # of one job; from then on it is left alone
    cool_down_s: Count = 300  # between two evictions of one job
    consolidation: Consolidation = Consolidation.PROPOSE
    half_life_s: Count = 0  # of past use in the fair share; 0: only what is in use now counts
    admitted_ahead: Count = 100  # jobs of one shape that a team may have admitted beyond what it is entitled to
    charge_from: ChargeFrom = ChargeFrom.STARTED
    instalment_s: Count = 3_600  # reserved at a time for a run without a declared runtime, or beyond it; at least 1
    waived_failed: Waived = Waived.LOST  # of runs that a node, a GPU or we ended
    waived_preempted: Waived = Waived.LOST  # of runs that were stopped for others, moved, or with their queue
    uncovered: Bearer = Bearer.ACCOUNT  # else a short runtime and a long grace would be GPU time for nothing
    breaker_percent: Count = 20  # of the GPUs: no more are taken out by verdicts at once; 0: none are
    keep_place_s: Count = 120  # what a gang that lost a member still has is kept for it; 0: nothing is
    avoid_s: Count = 3_600  # how long a job keeps away from a node that failed it, where there are others
    start_within_s: Count = (
        300  # from a placement until all ranks have started, where the job does not say; 0: no limit
    )
