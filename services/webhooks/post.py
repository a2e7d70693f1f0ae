"""One attempt over HTTP: resolved once, sent to an address that was checked, followed nowhere, and over in time."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

import httpx

from events.codec import CONTENT_TYPE
from runtime.clock import Clock
from services.webhooks.address import Address, Network, Target, parse_url, refusal
from services.webhooks.schedule import Answer, retry_after_s

TIMEOUT_S: Final = 20.0  # for all of an attempt, the resolving of its name included
ADDRESSES_MAX: Final = 3  # of one name, that are tried in turn while none can be connected to
AGENT: Final = f"musterbook/{version('musterbook')}"

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


async def resolve(host: str, port: int) -> Sequence[Address]:
    """The addresses of a host, as the machine's resolver gives them. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))


class Post:
    """Sends bodies to URLs. To be used as a context manager; costs nothing until something is sent."""

    def __init__(self, clock: Clock, allowed: Sequence[Network] = (), *, resolve: Resolve = resolve) -> None:
        self._clock = clock
        self._allowed = allowed
        self._resolve = resolve
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """What came back within `TIMEOUT_S`. Nothing is raised: what goes wrong on the way is the answer's problem."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._send(parse_url(url), headers, body)
        except TimeoutError:
            return Answer(0, problem=f"no answer within {TIMEOUT_S:.0f} s")
        except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(0, problem=str(error) or type(error).__name__)

    async def _send(self, target: Target, headers: Mapping[str, str], body: bytes) -> Answer:
        addresses, encrypted = await self._resolve(target.host, target.port), target.scheme == "https"
        refused = {one: refusal(one, encrypted=encrypted, allowed=self._allowed) for one in addresses}
        fit = [address for address, why in refused.items() if not why][:ADDRESSES_MAX]
        if not fit:
            return Answer(0, problem=next(iter(refused.values()), f"{target.host} has no address"))
        for address in fit[:-1]:
            try:
                return await self._post(target, address, headers, body)
            except httpx.ConnectError:
                continue  # nothing was sent
        return await self._post(target, fit[-1], headers, body)

    async def _post(self, target: Target, address: Address, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer of the server at this address, whose certificate is for the host all the same.

        The URL names the address, so that nobody resolves the host a second time, to another one.
        """
        there = f"[{address}]" if address.version == 6 else str(address)
        async with self._opened().stream(
            "POST",
            f"{target.scheme}://{there}:{target.port}{target.path}",
            headers={"Host": target.named, "Content-Type": CONTENT_TYPE, "User-Agent": AGENT, **headers},
            content=body,
            extensions={"sni_hostname": target.host},
        ) as response:  # its body is not read: the status says all
            asked = retry_after_s(response.headers.get("retry-after", ""), self._clock.now())
            return Answer(response.status_code, asked)

    def _opened(self) -> httpx.AsyncClient:
        """The client. It keeps no connection: one to an address may belong to another host the next time."""
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=None,  # noqa: S113 - the whole attempt has one
                trust_env=False,
                follow_redirects=False,
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        return self._client
