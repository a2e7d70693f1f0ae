"""No subject that a team or an agent may write says who pays, what it costs, or what an account has."""

from events.base import NodeId, TeamId
from events.subjects import Subjects
from runtime.embedded import principals

SUBJECTS = Subjects()
# Whoever writes one of these makes credits of nothing.
MONEY = [
    "muster.main.ev.credit.red",
    "muster.main.ev.teller.red.a1",
    "muster.main.ev.accounts",
    "muster.main.ev.prices",
    "muster.main.ev.period",
]


def test_nothing_that_a_team_or_an_agent_may_write_makes_credits() -> None:
    """Neither what they may publish to, nor what their accounts reach of the cell's, whoever is in them."""
    known = [principals.team(SUBJECTS, TeamId("red")), principals.agent(SUBJECTS, NodeId("node-1"))]
    reached = principals.accounts(SUBJECTS, [])
    for who in known:
        services = [one["service"]["subject"] for one in reached[who.account]["imports"] if "service" in one]
        for pattern in (*(who.publish or ()), *services):
            for subject in (*MONEY, SUBJECTS.operate):
                assert not _takes(pattern, subject), (who.user, pattern)


def test_balances_are_written_by_the_control_plane_alone() -> None:
    """A gate writes what operators asked and set; operators themselves only ask."""
    control, gate, operator = (part(SUBJECTS) for part in (principals.control, principals.gate, principals.operator))
    assert all(_takes(f"{SUBJECTS.events_prefix}>", subject) for subject in MONEY)
    assert f"{SUBJECTS.events_prefix}>" in (control.publish or ())
    writes = {subject for subject in MONEY for pattern in gate.publish or () if _takes(pattern, subject)}
    assert writes == {subject for subject in MONEY if not subject.endswith((".period", ".credit.red"))}
    assert not any(_takes(pattern, subject) for pattern in operator.publish or () for subject in MONEY)


def _takes(pattern: str, subject: str) -> bool:
    """Whether a subject is one of a pattern's, as the server sees it."""
    wanted, given = pattern.split("."), subject.split(".")
    for n, token in enumerate(wanted):
        if token == ">":
            return len(given) > n
        if n >= len(given) or token not in {"*", given[n]}:
            return False
    return len(wanted) == len(given)
