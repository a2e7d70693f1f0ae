"""The grammar of names and subjects: what may become a token, and what each subject is made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.base import (
    JobId,
    NodeId,
    RunId,
    TeamId,
    chapter_of,
    job_id_of,
    position_of,
    run_id_of,
    sequence_of,
    spelled,
)
from events.codec import TYPES
from events.subjects import (
    JOB_NAME_MAX,
    NAME_MAX,
    Subjects,
    events_stream,
    family_subject,
    is_job_name,
    is_name,
    last_token,
)
from tests.events.drawn import names
from tests.events.examples import EXAMPLES

BAD = [
    "", "-", "-a", "a-", "A", "a.b", ".", "a.", ".a", "*", "a*", ">", "a>", "a b", " a", "a ", "a\n", "a\t", "a\0",
    "ä", "a\u0301", "ａ", "١", "a_b", "a/b", "a:b", "a$", "$SYS", "_INBOX", "a\u200b", "🎉",
]  # fmt: skip


@pytest.mark.parametrize("name", ["a", "0", "a-b", "rack1-n04", "a" * NAME_MAX, "a--b"])
def test_names_are_short_words(name: str) -> None:
    """What a cell, a team, a node and a job may be called."""
    assert is_name(name)
    assert is_job_name(name)


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_what_would_change_a_subject_is_no_name(name: str) -> None:
    """Dots, wildcards, spaces, control characters, anything but lower-case ASCII."""
    assert not is_name(name)
    assert not is_job_name(name)


def test_names_have_a_greatest_length() -> None:
    """The server keeps every distinct subject in memory."""
    assert not is_name("a" * (NAME_MAX + 1))
    assert is_job_name("a" * JOB_NAME_MAX)
    assert not is_job_name("a" * (JOB_NAME_MAX + 1))


@given(text=st.text(max_size=50))
def test_a_name_is_one_token(text: str) -> None:
    """Whatever passes can stand in a subject and be found in it again."""
    if is_name(text) or is_job_name(text):
        assert text.isascii()
        assert not set(text) & set(".*> \t\r\n$_")
        assert last_token(Subjects().ask(TeamId(text))) == text


@given(cell=names, team=names, job=names, node=names)
def test_subjects_of_a_cell_stay_in_it(cell: str, team: str, job: str, node: str) -> None:
    """Every subject begins with its cell, and tokens are where the server's permissions expect them."""
    subjects = Subjects(cell)
    run = run_id_of(JobId(job), 3)

    assert subjects.intake(TeamId(team), JobId(job)) == f"muster.{cell}.ev.intake.{team}.{job}"
    assert subjects.ask(TeamId(team)) == f"muster.{cell}.ask.{team}"
    assert subjects.report(NodeId(node)) == f"muster.{cell}.report.{node}"
    assert subjects.heartbeat(node) == f"muster.{cell}.hb.{node}"
    assert subjects.desired(NodeId(node)) == f"muster.{cell}.desired.{node}"
    assert subjects.log(NodeId(node), JobId(job), run, 11) == f"muster.{cell}.log.{node}.{job}.{job}-3.11"
    assert subjects.head == subjects.events_prefix + "head"
    assert {subjects.asks, subjects.reports, subjects.heartbeats} == {
        f"muster.{cell}.{kind}.*" for kind in ("ask", "report", "hb")
    }
    assert {subjects.moved, subjects.why} == {f"muster.{cell}.moved", f"muster.{cell}.why"}


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_belongs_on_the_subject_of_its_own_ids(event: object) -> None:
    """Its family, then its ids, in order."""
    assert isinstance(event, TYPES)
    tokens = family_subject(event).split(".")

    assert tokens[0] == event.family.name
    assert tokens[1:] == [str(getattr(event, name)) for name in event.family.tokens]


@given(chapter=st.integers(1, 2**22), sequence=st.integers(1, 2**40 - 1))
def test_positions_are_sorted_by_chapter_then_sequence(chapter: int, sequence: int) -> None:
    """One number, from which both come back."""
    position = position_of(chapter, sequence)

    assert (chapter_of(position), sequence_of(position)) == (chapter, sequence)
    assert spelled(position) == f"{chapter}:{sequence}"
    assert position_of(chapter, 2**40 - 1) < position_of(chapter + 1, 1)
    assert position < 2**63


@given(job=names, attempt=st.integers(1, 10**6))
def test_run_ids_are_derived_and_give_their_job_back(job: str, attempt: int) -> None:
    """Deciding the same thing twice names the same run, also of jobs whose ids hold a dash."""
    assert job_id_of(run_id_of(JobId(job), attempt)) == job
    assert run_id_of(JobId(job), attempt) == RunId(f"{job}-{attempt}")


def test_chapters_have_streams() -> None:
    """Sorted by name as by number."""
    assert events_stream(1) == "EVENTS_0001"
    assert events_stream(1234) == "EVENTS_1234"
