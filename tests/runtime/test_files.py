"""Files that are whole."""

import os
from pathlib import Path

import pytest

from runtime.files import durable, write


@pytest.mark.parametrize("lasting", [False, True])
def test_a_file_holds_all_of_the_new_or_what_it_held_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lasting: bool
) -> None:
    """Whatever goes wrong before it takes its place."""
    path = tmp_path / "kept"
    write(path, b"first", lasting=lasting)

    def full(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="no space"):
            write(path, b"second", lasting=lasting)
    assert path.read_bytes() == b"first"
    write(path, b"third", lasting=lasting)
    assert path.read_bytes() == b"third"
    assert list(tmp_path.iterdir()) == [path]


def test_what_has_to_last_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, and then its name."""
    synced: list[bytes | None] = []

    def note(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(None if place.is_dir() else place.read_bytes())

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path / "kept", b"word", lasting=True)
    with durable(tmp_path / "long") as file:
        file.write(b"one ")
        file.write(b"two")
    assert synced == [b"word", None, b"one two"]
    write(tmp_path / "kept", b"other")
    assert len(synced) == 3
