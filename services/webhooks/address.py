"""Which addresses may be sent to: a URL as typed, and the number that its host resolves to.

Whoever may register an endpoint could otherwise reach, through us, what only we can reach: metadata services of clouds,
databases, this API itself.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, NamedTuple
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_MAX: Final = 2_000
PORTS: Final = {"http": 80, "https": 443}
PORT_MAX: Final = 65_535
UNICAST: Final = ip_network("2000::/3")  # all of version 6 that is given out for use in public. RFC 4291
TRANSLATED: Final = ip_network("64:ff9b::/96")  # NAT64: the last 32 bits are an address of version 4. RFC 6052


class Target(NamedTuple):
    """Where a URL leads."""

    scheme: str
    host: str
    port: int
    path: str  # with its query

    @property
    def named(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Where `url` leads. Raises `ValueError` with what is wrong with it."""
    if len(url) > URL_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"a URL has at most {URL_MAX} ASCII characters, and no space")
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("must begin with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or a password: deliveries are signed")
    if parts.fragment:
        raise ValueError("must not have a fragment: no server ever sees it")
    port = parts.port if parts.port is not None else PORTS[parts.scheme]  # raises for what is no port
    if not 0 < port <= PORT_MAX:
        raise ValueError("the port is 1 to 65535")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, parts.hostname, port, path)


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks that an operator allows. Raises `ValueError`."""
    return tuple(ip_network(text.strip()) for text in texts)


def refusal(address: Address, *, encrypted: bool, allowed: Sequence[Network]) -> str:
    """Why nothing is sent to an address; empty where it may be. What an operator allows may be, unencrypted too."""
    if any(address in network for network in allowed):
        return ""
    if not all(map(_is_public, _meant(address))):
        return f"{address} is not an address of the public internet, and no operator has allowed it"
    return "" if encrypted else "plain http would show events to all on the way: use https"


def _is_public(address: Address) -> bool:
    if address.is_multicast or not address.is_global:
        return False
    return address in UNICAST if isinstance(address, IPv6Address) else not address.is_reserved


def _meant(address: Address) -> list[Address]:
    """The addresses that packets to this one may come to: those of version 4 that it is another way to write."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in TRANSLATED:
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address, *(one for one in (address.sixtofour, *(address.teredo or ())) if one is not None)]
