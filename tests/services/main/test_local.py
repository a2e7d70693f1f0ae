"""Finding the cluster that was started here."""

from pathlib import Path

from services.main.local import Running, find_api, forget, read_running, write_running

RUNNING = Running("http://127.0.0.1:4711", "nats://127.0.0.1:1", "postgresql://x")


def test_a_cluster_is_found_from_its_folder_and_below(tmp_path: Path) -> None:
    """The nearest one counts; where there is none, the default address."""
    data_dir, below = tmp_path / ".muster", tmp_path / "a" / "b"
    data_dir.mkdir()
    below.mkdir(parents=True)
    write_running(data_dir, RUNNING)
    assert find_api(tmp_path).url == find_api(below).url == RUNNING.url
    assert find_api(below).known_from == str(data_dir / "api.json")
    forget(data_dir)
    assert find_api(below).url == "http://127.0.0.1:8080"


def test_a_damaged_file_is_none(tmp_path: Path) -> None:
    """It is passed over: the command says that no server answers, instead of failing on the file."""
    (tmp_path / ".muster").mkdir()
    for text in ("", "{", "[]", '{"url": 1}'):
        (tmp_path / ".muster" / "api.json").write_text(text)
        assert read_running(tmp_path / ".muster") is None
        assert find_api(tmp_path).known_from == "the default"
