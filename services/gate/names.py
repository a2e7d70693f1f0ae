"""Ids and names as people type them: what is wrong with one, a legal one that is near, and the id of a job."""

import base64
import hashlib
import re
import unicodedata
from typing import Final

from events.base import AccountId, AskId, JobId, TeamId
from events.subjects import JOB_NAME_RULE, NAME_RULE, is_job_name, is_name

KEY_MAX: Final = 200  # characters of an idempotency key
JOB_ID: Final = re.compile(r"j[a-z2-7]{13}")
SHOWN_MAX: Final = 60  # characters of a wrong value that an answer repeats


def job_id_for(team: TeamId, key: str) -> JobId:
    """The id of the job that a team asked for under a key: 65 bits of a hash, the same for ever."""
    return JobId("j" + _hashed(team, key))


def ask_id_for(account: AccountId, key: str) -> AskId:
    """The id of what was asked of an account under a key: as that of a job."""
    return AskId("a" + _hashed(account, key))


def _hashed(owner: str, key: str) -> str:
    digest = hashlib.sha256(f"{owner}\0{key}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:13]


def is_job_id(text: str) -> bool:
    """Whether `text` may be the id of a job."""
    return JOB_ID.fullmatch(text) is not None


def name_problem(text: str) -> str:
    """What keeps `text` from being the name of a team or node, as the end of a sentence; empty for a legal name."""
    return "" if is_name(text) else f"{_what_is_wrong(text, 24)}; a name is {NAME_RULE}"


def job_name_problem(text: str) -> str:
    """What keeps `text` from being the name of a job, as the end of a sentence; empty for a legal name."""
    return "" if is_job_name(text) else f"{_what_is_wrong(text, 40)}; a job's name is {JOB_NAME_RULE}"


def near_name(text: str, longest: int) -> str:
    """A legal name made of what is legal in `text`; empty where nothing is."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:longest].rstrip("-")


def shown(value: object) -> str:
    """A wrong value as answers repeat it: quoted, and cut where it is long."""
    words = {None: "null", True: "true", False: "false"}  # as in JSON and YAML
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def _what_is_wrong(text: str, longest: int) -> str:
    given = shown(text)
    if not text:
        return "is empty"
    if "." in text:
        return f"{given} has a dot, which divides subjects"
    if "*" in text or ">" in text:
        return f"{given} has a wildcard (* or >)"
    if any(character.isspace() for character in text):
        return f"{given} has a space"
    foreign = next((character for character in text if not character.isascii()), "")
    if foreign:
        return f"{given} has {foreign!r}, which is not ASCII"
    if text != text.lower():
        return f"{given} has capital letters"
    if len(text) > longest:
        return f"{given} has {len(text)} characters"
    if text.startswith("-") or text.endswith("-"):
        return f"{given} begins or ends with a dash"
    wrong = next((character for character in text if not re.match(r"[a-z0-9-]", character)), "")
    return f"{given} has {wrong!r}"
