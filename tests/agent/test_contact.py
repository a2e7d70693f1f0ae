"""What an agent promises in its heartbeats, what binds it, and what of that outlives it."""

from pathlib import Path
from typing import Final

import pytest

from agent.contact import Contacts
from agent.records import Records
from events.base import Position
from events.desired import Waiting
from runtime.clock import ManualClock

BOOT: Final = "boot-1"
WAIT: Final = Waiting(at=ManualClock().now(), even_s=120.0, least_s=90.0, most_s=300.0)
SHORT: Final = Waiting(at=ManualClock().now(), even_s=0.0, least_s=45.0, most_s=45.0)


class Told:
    """An agent's contacts, as its loops use them."""

    def __init__(self, folder: Path, clock: ManualClock | None = None, boot_id: str = BOOT) -> None:
        self.clock = clock or ManualClock()
        self.records = Records(folder)
        self.contacts = Contacts(self.records, boot_id, self.clock, lost_after_s=90.0)

    def read(self, waiting: Waiting | None, as_of: int) -> None:
        """What is desired was read."""
        self.contacts.told(waiting, Position(as_of))
        self.records.keep_as_of(Position(as_of))

    def beat(self) -> float:
        """A heartbeat that surely arrived; what it promised."""
        patience_s = self.contacts.patience_s
        self.contacts.confirmed(self.clock.monotonic(), patience_s)
        return patience_s


def test_a_promise_grows_with_what_a_restart_costs_and_no_further_than_the_most(tmp_path: Path) -> None:
    """Nobody has to tell it again."""
    told = Told(tmp_path)
    assert told.beat() == 90.0
    told.read(WAIT, 7)
    promised = []
    for wait_s in (0, 60, 60, 120):
        told.clock.advance(wait_s)
        promised.append(told.beat())
    assert promised == [120.0, 180.0, 240.0, 300.0]


def test_a_node_that_is_cut_off_keeps_to_its_last_promise(tmp_path: Path) -> None:
    """It does not grow while nobody hears it."""
    told = Told(tmp_path)
    told.read(WAIT, 7)
    told.beat()
    told.clock.advance(500.0)
    assert (told.contacts.silent_s, told.contacts.ended_by_s) == (500.0, 110.0)


def test_a_longer_wait_binds_once_it_was_promised_and_a_shorter_one_at_once(tmp_path: Path) -> None:
    """The control plane waits for what it heard; of what was told since, it may know the less only."""
    told = Told(tmp_path)
    told.beat()
    told.read(WAIT, 7)
    assert told.contacts.ended_by_s == 80.0
    told.beat()
    assert told.contacts.ended_by_s == 110.0
    told.read(SHORT, 8)
    assert told.contacts.ended_by_s == 35.0


def test_the_next_agent_keeps_the_promise_and_counts_from_when_it_was_told(tmp_path: Path) -> None:
    """Of the same boot: an agent that is replaced neither waits anew nor gives up what has run for long."""
    told = Told(tmp_path)
    told.read(WAIT, 7)
    told.clock.advance(100.0)
    told.beat()
    told.clock.advance(20.0)

    after = Told(tmp_path, told.clock)

    assert (after.contacts.silent_s, after.contacts.ended_by_s) == (20.0, 210.0)
    after.read(WAIT, 7)
    assert after.beat() == 240.0
    after.read(WAIT, 8)
    assert after.beat() == 120.0


@pytest.mark.parametrize("noted", ["", "boot-1 5.0", "other 1.0 2.0 3.0"])
def test_what_is_noted_of_another_boot_or_version_is_not_believed(tmp_path: Path, noted: str) -> None:
    """Waiting begins with this agent."""
    (tmp_path / "contact").write_text(noted)
    told = Told(tmp_path)
    told.clock.advance(5.0)
    assert (told.contacts.silent_s, told.contacts.ended_by_s) == (5.0, 80.0)


def test_heartbeats_come_as_often_as_was_told(tmp_path: Path) -> None:
    """Or as the setting says, where nothing was."""
    told = Told(tmp_path)
    assert told.contacts.every_s(10.0) == 10.0
    told.read(SHORT, 7)
    assert told.contacts.every_s(10.0) == 5.0
