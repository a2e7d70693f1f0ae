"""A hint who should lead: one key in a JetStream bucket, kept fresh by its holder. The log's head is what fences.

Nobody's clock is compared with another's. The holder takes its lease for lost `ttl_s` after it *sent* its last
renewal that was confirmed; another takes over when it has seen one revision unchanged for `ttl_s` by its own clock.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from runtime.clock import Clock
from runtime.logging import get_logger

logger = get_logger(__name__)

BUCKET: Final = "LEASE"
KEY: Final = "leader"
RENEWALS: Final = 5  # within one `ttl_s`
FAULTS: Final = (OSError, TimeoutError, nats.errors.Error)  # JetStream's own errors are among the last


class Holder(msgspec.Struct, frozen=True):
    """The value of the key: whose it is. Empty: given back."""

    instance: str


class Lease:
    """Tries to hold the lease for `instance` while `run` runs and `wanted`. Reading `held` costs nothing, never fails."""

    def __init__(
        self,
        connection: Client,
        *,
        instance: str,
        ttl_s: float,
        clock: Clock,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        assert instance
        self._connection = connection
        self._jetstream = connection.jetstream(timeout=ttl_s / RENEWALS)
        self._instance = instance
        self._ttl_s = ttl_s
        self._clock = clock
        self._wanted = wanted
        self._held_until_s = float("-inf")
        self._holder = ""
        self._revision = 0
        self._seen_s = clock.monotonic()  # since when the revision has been as it is

    @property
    def held(self) -> bool:
        """Whether we should lead now."""
        return self._clock.monotonic() < self._held_until_s

    @property
    def holder(self) -> str:
        """Who held it when last looked at; empty: nobody."""
        return self._holder

    async def run(self) -> None:
        """Hold it whenever it is wanted and can be had, until cancelled; then give it back.

        Trouble with NATS is waited out.
        """
        try:
            while True:
                before = self.held
                with suppress(*FAULTS):  # not renewed is not held, soon enough
                    await self._step()
                if self.held != before:
                    logger.info("lease_taken" if self.held else "lease_lost", instance=self._instance)
                await asyncio.sleep(self._ttl_s / RENEWALS)
        finally:
            with suppress(*FAULTS):
                await self._give_back()

    async def _step(self) -> None:
        """Renew what is ours, else look whether it has become free. What is ours and no longer wanted is given back."""
        if not self._wanted():
            await self._give_back()
            return
        if self._holder != self._instance or not self._revision:
            await self._look()
        free = not self._holder or self._clock.monotonic() - self._seen_s >= self._ttl_s
        if free or self._holder == self._instance:
            await self._write(self._instance)

    async def _look(self) -> None:
        """What the bucket's leader has is known."""
        try:
            message = await self._jetstream.get_last_msg(f"KV_{BUCKET}", f"$KV.{BUCKET}.{KEY}")
        except nats.js.errors.NotFoundError:
            self._saw(revision=0, holder="")
            return
        try:
            holder = msgspec.json.decode(message.data or b"", type=Holder).instance
        except msgspec.DecodeError:
            holder = ""  # of another make, or removed: free
        self._saw(revision=message.seq or 0, holder=holder)

    async def _write(self, instance: str) -> None:
        """The key names `instance`, if it was as we saw it last; else it has to be looked at again."""
        sent_s = self._clock.monotonic()
        value = msgspec.json.encode(Holder(instance))
        expected = {"Nats-Expected-Last-Subject-Sequence": str(self._revision)}
        try:
            acknowledged = await self._jetstream.publish(f"$KV.{BUCKET}.{KEY}", value, headers=expected)
        except FAULTS as fault:
            self._holder, self._revision = "", 0  # refused, or unknown: both are told by a look
            if isinstance(fault, nats.js.errors.APIError) and instance == self._instance:
                self._held_until_s = float("-inf")  # somebody else has written
            await self._look()
            return
        self._saw(revision=acknowledged.seq, holder=instance)
        if instance == self._instance:
            self._held_until_s = sent_s + self._ttl_s

    async def _give_back(self) -> None:
        if self._holder == self._instance and self._revision:
            self._held_until_s = float("-inf")
            await self._write("")

    def _saw(self, *, revision: int, holder: str) -> None:
        if revision != self._revision or holder != self._holder:
            self._seen_s = self._clock.monotonic()
        self._revision, self._holder = revision, holder
