"""Pictures: well-formed, within their frame, and the same for the same simulation."""

import re
from xml.etree import ElementTree as ET

import pytest

from services.simulate.engine import Sample
from services.simulate.picture import WIDTH, nice, picture
from services.simulate.work import US
from tests.services.simulate.test_measure import life

LIVES = [life(gpus, 0, wait_s, wait_s + 9) for gpus, wait_s in ((1, 0), (1, 30), (8, 4_000), (64, 900_000))]
SAMPLES = [Sample(0, 4, 0, 0), Sample(50 * US, 8, 3, 700), Sample(80 * US, 0, 0, 0), Sample(3_600 * US, 0, 0, 0)]


def drawn(**other: object) -> ET.Element:
    """A picture, read back."""
    given = {"title": "a < b", "subtitle": "x", "lives": LIVES, "samples": SAMPLES, "capacity": 8, **other}
    return ET.fromstring(picture(**given))  # type: ignore[arg-type]  # noqa: S314  # our own


def test_a_picture_says_what_it_shows() -> None:
    """Title, both courses with their axes, and a row for each class of sizes."""
    said = [element.text for element in drawn().iter() if element.text and element.text.strip()]
    for words in (
        "a < b",
        "GPUs in use",
        "100 %",
        "GPUs waited for",
        "Wait by GPUs of the job",
        "33-64",
        "2 jobs",
        "1 job",
    ):
        assert words in said


@pytest.mark.parametrize("other", [{}, {"samples": []}, {"lives": []}, {"capacity": 0}, {"samples": SAMPLES[:1]}])
def test_everything_is_within_the_frame(other: dict[str, object]) -> None:
    """Also where nothing happened."""
    root = drawn(**other)
    height = float(root.attrib["height"])
    for element in root.iter():
        for name, most in (
            ("x", WIDTH),
            ("x1", WIDTH),
            ("x2", WIDTH),
            ("cx", WIDTH),
            ("y", height),
            ("y1", height),
            ("cy", height),
        ):
            assert 0 <= float(element.attrib.get(name, 0)) <= most + 1, element.attrib
        for number in re.findall(r"-?[\d.]+", element.attrib.get("d", "")):
            assert 0 <= float(number) <= max(WIDTH, height)


def test_the_same_simulation_gives_the_same_bytes() -> None:
    """Of bounded size, however long it was."""
    many = [Sample(n * US, n % 9, n % 5, n % 50) for n in range(20_000)]
    first, again = (picture("t", "s", LIVES, many, 8) for _ in range(2))
    assert first == again
    assert len(first) < 60_000


def test_ticks_are_round_numbers() -> None:
    """From 0 on, and few."""
    assert nice(100) == [0, 20, 40, 60, 80, 100]
    assert nice(7) == [0, 2, 4, 6, 8]
    assert nice(7, inside=True) == [0, 2, 4, 6]
    assert nice(0.03) == [0, 0.01, 0.02, 0.03]
