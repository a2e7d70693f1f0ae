"""Passwords of the cell's NATS users: drawn once, kept in a file that only its owner reads."""

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from runtime.fault import Fault

FILE: Final = "credentials.json"
PASSWORD_BYTES: Final = 24  # of chance, before encoding


class Credentials:
    """User names and passwords of one data directory. Adding a user keeps the others' passwords."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE

    def all(self) -> dict[str, str]:
        """Passwords by user. Empty before the first `ensure`."""
        try:
            read = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        except json.JSONDecodeError as error:
            raise Fault(
                "credentials_unreadable", f"{self._path} is not JSON: {error}.", "Restore or delete it."
            ) from error
        return {str(user): str(password) for user, password in read.items()}

    def password(self, user: str) -> str:
        """The password of a user. Raises `Fault` if it has none here."""
        try:
            return self.all()[user]
        except KeyError as missing:
            raise Fault("user_unknown", f"{self._path} has no user {user!r}.", "Was it ever added here?") from missing

    def ensure(self, users: Iterable[str]) -> dict[str, str]:
        """Passwords by user, with one for each of `users`; those that are new are safely on disk."""
        known = self.all()
        new = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in users if user not in known}
        if new:
            self._write(known | new)
        return known | new

    def adopt(self, passwords: dict[str, str]) -> None:
        """These are known here too, in place of others for the same users: servers of one cluster share them."""
        known = self.all()
        if known | passwords != known:
            self._write(known | passwords)

    def _write(self, passwords: dict[str, str]) -> None:
        write_private(self._path, json.dumps(passwords, indent=1, sort_keys=True) + "\n")


def write_private(path: Path, text: str) -> None:
    """The file holds `text`, whole or as before, and only its owner reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
