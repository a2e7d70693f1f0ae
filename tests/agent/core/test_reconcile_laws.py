"""Laws of reconciling, over histories in which the agent dies between any two steps."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.core.action import Join
from events.base import NodeEpoch, RunId
from events.desired import Desired, DesiredShare, Order
from tests.agent.core.world import GPUS, World, desired_of, share_of

RUNS = 6
HISTORIES = settings(max_examples=200)  # of each law: most are about nothing
Happening = tuple[str, int, int]

WHOLE = ("turn", 1_000, 0)
NUMBERS = range(RUNS)
OFTEN: list[Happening] = [
    *[("run", number, 0) for number in NUMBERS] * 3,
    *[(kind, number, rank) for kind in ("exit", "fail") for number in NUMBERS for rank in (0, 1)],
    *[("finish", number, 0) for number in NUMBERS] * 3,
    *[("stop", number, 0) for number in NUMBERS],
    *[("drop", number, 0) for number in NUMBERS] * 2,
    *[WHOLE] * 50,
    *[("turn", steps, 0) for steps in range(1, 7)] * 2,  # the agent dies after so many steps
    *[("wait", seconds, 0) for seconds in (1, 6)],
    *[("deaf", number, 0) for number in (0, 1)],
    *[("sick", number, 0) for number in range(len(GPUS))] * 2,
    *[(kind, 0, 0) for kind in ("reboot", "lost", "late", "late", *["blind"] * 12, "forged", "forged")],
]
happenings = st.lists(st.sampled_from(OFTEN), min_size=40, max_size=80)


class History:
    """A node and what is desired of it, as its control plane would: a share leaves only once it was released."""

    def __init__(self) -> None:
        self.world = World()
        self.wanted: dict[int, DesiredShare] = {}
        self.gone: set[int] = set()
        self.desired: Desired | None = None
        self.lost = False
        self.sick: set[int] = set()  # GPUs that are to be reset
        self.past: list[Desired | None] = [None]
        self.seen = 0  # which of them the agent obeyed last

    def happen(self, happening: Happening) -> None:
        """One thing more."""
        kind, number, rank = happening
        run_id = RunId(f"j{number}-1")
        match kind:
            case "run" if number not in self.gone | self.wanted.keys() and self._free(number):
                self.wanted[number] = share_of(number)
            case "stop" if number in self.wanted:
                self.wanted[number] = replace(self.wanted[number], order=Order.STOP)
            case "drop" if number in self.wanted and run_id in self.world.released:
                self._drop(number)
            case "exit" | "fail" | "finish" if run_id in self.world.traces:
                for ended in (0, 1) if kind == "finish" else (rank,):
                    self.world.exit(run_id, ended, 3 if kind == "fail" else 0)
            case _:
                self._happen_to_node(kind, number)
        self.write()

    def _happen_to_node(self, kind: str, number: int) -> None:
        world = self.world
        match kind:
            case "turn":
                self.seen = len(self.past) - 1
                world.reconcile(self.desired, number)
            case "late":  # a value that was overwritten since; an agent obeys none older than it has seen
                self.seen = (self.seen + len(self.past)) // 2
                world.reconcile(self.past[self.seen])
            case "blind":  # an agent that has just started, and no server answers
                world.reconcile(None)
            case "forged" if world.epoch > 0:  # a join that was repeated: a newer life, with ranks of the one before
                world.position += 1
                world.reconcile(desired_of(epoch=world.position))
            case "wait":
                world.age(number)
            case "deaf":
                world.heeds_term = number == 1
            case "sick":
                self.sick ^= {number}
            case "reboot":
                world.reboot()
            case "lost":
                self.lost = True

    def write(self) -> None:
        """What is desired now. A new life of the node ends all runs of the one before."""
        epoch = self.world.epoch
        if self.desired is not None and self.desired.epoch != epoch and epoch > 0:
            self.lost = False
            for number in list(self.wanted):
                self._drop(number)
        if epoch > 0:
            shares = () if self.lost else self.wanted.values()
            resets = tuple(GPUS[number] for number in sorted(self.sick))
            self.desired = replace(desired_of(*shares, epoch=epoch, lost=self.lost), resets=resets)
            self.past.append(self.desired)

    def settle(self) -> list[Any]:
        """The last actions after enough quiet turns."""
        actions: list[Any] = []
        for _ in range(3):
            self.write()
            actions = self.world.settle(self.desired)
        return actions

    def _free(self, number: int) -> bool:
        return all(other % 2 != number % 2 for other in self.wanted)

    def _drop(self, number: int) -> None:
        del self.wanted[number]
        self.gone.add(number)


def history_of(happened: list[Happening]) -> History:
    """All of it, one after the other."""
    history = History()
    history.world.reconcile(None)
    history.write()
    history.world.reconcile(history.desired)
    for happening in happened:
        history.happen(happening)
    return history


@HISTORIES
@given(happenings)
def test_no_rank_is_ever_started_twice(happened: list[Happening]) -> None:
    """Whatever died between whichever steps: a run has one life on a node, and two never share a GPU."""
    history = history_of(happened)
    history.settle()

    assert len(history.world.started) == len(set(history.world.started))


@HISTORIES
@given(happenings)
def test_what_is_wanted_settles(happened: list[Happening]) -> None:
    """Once nothing happens any more, there is nothing left to do, and doing it again changes nothing."""
    history = history_of(happened)

    assert history.settle() == []
    if history.world.epoch > 0:
        assert history.world.pooled >= frozenset(gpu for gpu in history.world.found(None).gpus) - {
            gpu for run, _ in history.world.living for gpu in history.world.traces[run].share.gpu_uuids
        }


@HISTORIES
@given(happenings)
def test_what_is_to_stop_is_released_once_everything_of_it_has_ended(happened: list[Happening]) -> None:
    """The world asserts that nothing is told or released while a process lives; here, that it is at last."""
    history = history_of(happened)
    history.settle()
    for number in history.wanted:
        history.wanted[number] = replace(history.wanted[number], order=Order.STOP)
    history.settle()

    assert history.world.living == {}
    assert {share.run_id for share in history.wanted.values()} <= set(history.world.released)


@HISTORIES
@given(happenings)
def test_a_gpu_that_is_to_be_reset_is_once_nothing_holds_it(happened: list[Happening]) -> None:
    """The world asserts that no process holds it then; here, that it is reset at last, and once while it is wanted."""
    history = history_of(happened)
    history.wanted.clear()
    history.sick = set()
    history.settle()
    history.world.resets.clear()
    history.sick = {0, 2}
    history.settle()

    assert sorted(history.world.resets) == [GPUS[0], GPUS[2]]
    assert history.world.tried == set(history.world.resets)


@HISTORIES
@given(happenings)
def test_nothing_is_kept_of_what_nobody_names(happened: list[Happening]) -> None:
    """When desired is empty, no process runs and no record is kept."""
    history = history_of(happened)
    history.settle()
    history.wanted.clear()
    history.settle()

    assert history.world.living == {}
    assert history.world.traces == {}


@HISTORIES
@given(happenings)
def test_an_agent_that_was_replaced_ends_its_ranks_and_says_nothing(happened: list[Happening]) -> None:
    """Another instance has a newer epoch: whatever was, the older one falls silent."""
    history = history_of(happened)
    history.settle()
    told = (len(history.world.released), len(history.world.ended), history.world.epoch)
    other = desired_of(share_of(9), epoch=NodeEpoch(history.world.epoch + 1_000), instance="other")

    actions = history.world.settle(other)

    assert history.world.living == {}
    assert (len(history.world.released), len(history.world.ended), history.world.epoch) == told
    assert Join() not in actions
