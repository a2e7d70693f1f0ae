"""How streams of a copy are made before all of them are there."""

from events.log.streams import UNFINISHED
from runtime.stream_copy import Saved
from services.main.unfinished import unfinished


def test_a_chapter_is_put_back_shut_and_only_the_first_says_that_it_is_not_all() -> None:
    """Whatever it listened to when it was copied; all else of it stays as it was."""
    for name, closing in (("EVENTS_0001", "muster.main.chapter.1"), ("EVENTS_0012", "muster.main.chapter.12")):
        saved = Saved({"name": name, "subjects": ["muster.main.ev.>"], "metadata": {"of": "others"}}, {"last_seq": 7})

        put = unfinished(saved, "main")

        assert put.config["subjects"] == [closing]
        assert put.config["metadata"] == {"of": "others"} | ({UNFINISHED: "1"} if name == "EVENTS_0001" else {})
        assert (put.config["name"], put.state) == (name, saved.state)


def test_streams_beside_the_log_are_put_back_as_they_were() -> None:
    """What ranks have written is no log."""
    logs = Saved({"name": "LOGS", "subjects": ["muster.main.log.>"]}, {})
    assert unfinished(logs, "main") == logs
