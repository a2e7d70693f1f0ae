"""Addresses: what leads inside is refused however it is written, unless an operator allows it."""

from ipaddress import ip_address

import pytest

from services.webhooks.address import parse_networks, parse_url, refusal


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1",
        "::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "2002:7f00:1::", "2002:a9fe:a9fe::1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b:1::1",
    ],
)  # fmt: skip
def test_what_leads_inside_is_refused(text: str) -> None:
    """Loopback, link-local, private, shared, multicast, reserved; written as an address of version 6 or not."""
    assert "no operator has allowed it" in refusal(ip_address(text), encrypted=True, allowed=())


@pytest.mark.parametrize("text", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_the_public_internet_may_be_sent_to_over_tls_only(text: str) -> None:
    """Without TLS everyone on the way reads along."""
    assert refusal(ip_address(text), encrypted=True, allowed=()) == ""
    assert "https" in refusal(ip_address(text), encrypted=False, allowed=())


def test_what_an_operator_allows_may_be_sent_to() -> None:
    """Without TLS too: it is a network of their own. All else stays as it was."""
    allowed = parse_networks(["127.0.0.0/8", " 10.20.0.0/16 ", "fd00::/8"])
    for text in ("127.0.0.1", "10.20.1.1", "fd12::1"):
        assert refusal(ip_address(text), encrypted=False, allowed=allowed) == ""
    for text in ("10.21.1.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"):
        assert refusal(ip_address(text), encrypted=True, allowed=allowed)


@pytest.mark.parametrize(
    ("url", "named", "port", "path"),
    [
        ("https://hooks.example/a?b=c", "hooks.example", 443, "/a?b=c"),
        ("HTTPS://Hooks.Example", "hooks.example", 443, "/"),
        ("http://127.0.0.1:8000/x", "127.0.0.1:8000", 8000, "/x"),
        ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443", 8443, "/"),
    ],
)
def test_a_url_leads_to_a_host_a_port_and_a_path(url: str, named: str, port: int, path: str) -> None:
    """And the Host header names the port where it is not the usual one."""
    target = parse_url(url)
    assert (target.named, target.port, target.path) == (named, port, path)


@pytest.mark.parametrize(
    "url",
    [
        "", "hooks.example", "ftp://hooks.example/", "file:///etc/passwd", "https://", "https:///x", "https://u:p@h/",
        "https://h/#f", "https://h:0/", "https://h:70000/", "https://h:x/", "https://h/\r\nX: y", "https://h/a b",
        "https://h/ä", "https://[::1/", "https://h/" + "x" * 2_000,
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_refused(url: str) -> None:
    """When it is typed, not when it is first sent to."""
    with pytest.raises(ValueError):  # noqa: PT011 - of any wording
        parse_url(url)
