"""What the routes of the log give, field by field."""

from datetime import datetime

from pydantic import BaseModel, Field

from events.chapter import RollCause


class Chapter(BaseModel):
    """A part of the log. What it says of itself when it is closed is null while it is open."""

    chapter: int
    position: int = Field(description="Of its last record.")
    records: int
    first_at: datetime | None = Field(description="When its first record was stored.")
    last_at: datetime | None
    size_bytes: int | None = Field(description="Of its events.")
    digest: str | None = Field(
        description="SHA-256 over all of the log up to its closing, in hex: muster verify checks it."
    )
    cause: RollCause | None = Field(description="Why it was closed.")
    by: str = Field("", description="Who asked for that.")


class Log(BaseModel):
    """The log."""

    position: int = Field(description="Where it ends.")
    chapters: list[Chapter]


class Rolled(BaseModel):
    """The chapter that is open now."""

    chapter: int
    closed: int = Field(description="Position of the last record of the one before.")
    position: int = Field(description="Of its first record.")
    gap_s: float = Field(description="For how long nothing was written; 0 where another control plane did it.")
