"""What is said of each reason: every code has its words, in the program and in the documents."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from events.ask import Basis, Outcome, Tier
from events.gpu import GpuSignal
from events.job import HoldCode, OnLost
from projections.cluster.explain.reason import tier_of
from projections.cluster.explain.sentences import SENTENCES, count, some, time_of
from projections.cluster.explain.why import explain
from tests.services.health.ward import Ward

DOCUMENT = Path(__file__).parents[4] / "docs" / "why.md"


def rows(heading: str) -> list[str]:
    """The first cells of the table below a heading of docs/why.md."""
    section = DOCUMENT.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)


def test_every_code_has_a_sentence_and_a_line_in_the_documents() -> None:
    """In the order in which the gravest is told, each below its tier."""
    assert set(SENTENCES) == set(HoldCode)
    headings = {
        Tier.HELD: "Held",
        Tier.IMPOSSIBLE: "Impossible with the numbers of now",
        Tier.OVER_QUOTA: "Over quota",
        Tier.ROOM: "Room",
        Tier.NOT_EVALUATED: "Not evaluated",
    }
    for tier, heading in headings.items():
        assert rows(heading) == [code.value for code in HoldCode if tier_of(code) is tier]


def test_every_basis_and_outcome_is_documented() -> None:
    """Programs compare them too."""
    assert rows("When will it start?") == [basis.value for basis in Basis]
    assert rows("What would become of it?") == [outcome.value for outcome in Outcome]


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_things_are_counted(number: int, text: str) -> None:
    """One is one."""
    assert count(number, "node") == text


def test_long_lists_and_far_moments_are_said_briefly() -> None:
    """Five names and how many more; a date only where it is another one."""
    assert some(["a", "b"]) == "a, b"
    assert some([str(n) for n in range(9)]) == "0, 1, 2, 3, 4 and 4 more"
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert time_of(now, now) == "12:00:00 UTC"
    assert time_of(now + timedelta(days=1), now) == "2026-01-02 12:00:00 UTC"


def test_what_would_hold_a_job_but_for_its_health_is_said() -> None:
    """Whoever reads that the cluster is too small would else buy nodes."""
    world = Ward({"n1": 4})
    world.signal(0, "n1-0", GpuSignal.MISSING)
    world.judge()
    why = explain(world.cluster, world.submit("job", 4), at=world.at)
    assert why.code == HoldCode.EXCEEDS_CLUSTER
    assert why.message.endswith("have 3, free or not (1 node), and 1 more that health has taken out")
    assert why.next_action == "see what returns those that are out (muster nodes), or ask for fewer GPUs"
    why = explain(world.cluster, world.submit("larger", 5), at=world.at)
    assert why.next_action == "ask for fewer GPUs, or add nodes"  # all that are out would not be enough


def test_a_run_that_waits_for_a_lost_node_says_so() -> None:
    """And what ends that, since nothing else does."""
    world = Ward({"n1": 4, "n2": 4})
    job = world.put(world.submit("job", 8, on_lost=OnLost.WAIT), n1=4, n2=4)
    world.start(job)
    world.lose("n1")
    world.rounds()
    world.release(job, "n2")
    waits = "0 of 2 nodes hold GPUs still; by on_lost: wait it waits for n1 to come back clean, or to be retired"
    assert explain(world.cluster, job, at=world.at).message.endswith(waits)
