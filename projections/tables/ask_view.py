"""`ask_view`: what operators asked of accounts, and what became of it."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from events.base import AccountId, AskId, Position
from projections.tables.rows import Rows
from runtime.postgres import Connection, Pool

LOAD: Final = """
SELECT ask_id, account, kind, amount_micro, state, code, message, entry, by, reason, asked_at, position
FROM ask_view WHERE ask_id = ANY($1)
"""
WRITE: Final = """
INSERT INTO ask_view SELECT * FROM json_populate_recordset(NULL::ask_view, $1::json)
ON CONFLICT (ask_id) DO UPDATE SET
    state = excluded.state, code = excluded.code, message = excluded.message, entry = excluded.entry,
    position = excluded.position
"""
ONE: Final = """
SELECT ask_id, account, kind, amount_micro, state, code, message, entry, by, reason, asked_at, position
FROM live.ask_view WHERE ask_id = $1
"""
OF_ACCOUNT: Final = """
SELECT ask_id, account, kind, amount_micro, state, code, message, entry, by, reason, asked_at, position
FROM live.ask_view WHERE account = $1 ORDER BY asked_at DESC, ask_id DESC LIMIT $2
"""
PAGE_MAX: Final = 1_000


class AskKind(StrEnum):
    """What was asked for."""

    GRANT = "grant"
    ADJUSTMENT = "adjustment"


class AskState(StrEnum):
    """What became of it."""

    ASKED = "asked"  # not answered yet
    DONE = "done"
    REFUSED = "refused"


class AskRow(msgspec.Struct, gc=False):
    """What an operator asked of an account."""

    ask_id: AskId
    account: AccountId
    kind: str  # an `AskKind`
    amount_micro: int
    state: str  # an `AskState`
    code: str | None  # of a refusal
    message: str | None  # likewise
    entry: int | None  # of the account, that answers it
    by: str
    reason: str
    asked_at: datetime
    position: Position  # of the last event that changed it


def rows() -> Rows[AskId, AskRow]:
    """The table, with nothing read yet."""
    return Rows(AskRow, lambda row: row.ask_id, load=LOAD, write=WRITE)


async def ask(db: Pool | Connection, ask_id: str) -> AskRow | None:
    """What was asked under this id; None: nothing was."""
    record = await db.fetchrow(ONE, ask_id)
    return AskRow(*record) if record is not None else None


async def asks_of(db: Pool | Connection, account: str, *, limit: int = 100) -> list[AskRow]:
    """What was last asked of an account, the newest first."""
    return [AskRow(*record) for record in await db.fetch(OF_ACCOUNT, account, min(limit, PAGE_MAX))]
