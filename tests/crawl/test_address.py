"""The address guard: what may be connected to."""

from __future__ import annotations

import ipaddress

import pytest

from flask_spiderpool.crawl.address import AddressGuard, is_public
from flask_spiderpool.errors import FetchError, InvalidParameter
from flask_spiderpool.terms import Reason


def _open(guard: AddressGuard, ip: str, port: int = 80, host: str = "named.example") -> bool:
    try:
        guard.check(ip, port, host)
    except FetchError:
        return False
    return True


@pytest.mark.parametrize(
    "ip",
    [
        "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254",
        "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "203.0.113.9",
        "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "3fff::1",
        "2001::1", "100::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1",
        "2002:7f00:1::", "2002:0a00:0001::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1",
        "not an address", "",
    ],
)  # fmt: skip
def test_shut_by_default(ip: str) -> None:
    """Everything that is not globally routed is shut, also when wrapped into IPv6."""
    assert not _open(AddressGuard(), ip)


@pytest.mark.parametrize(
    "ip",
    ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2002:0101:0101::1", "64:ff9b::101:101"],
)
def test_public_is_open(ip: str) -> None:
    """Globally routed addresses need no permission."""
    assert _open(AddressGuard(), ip)


def test_never_more_open_than_the_standard_library() -> None:
    """No address that Python calls private is public for us."""
    for text in (
        "10.1.2.3",
        "127.0.0.1",
        "192.168.0.1",
        "169.254.1.1",
        "172.20.0.1",
        "fc00::1",
        "fe80::1",
        "::1",
    ):
        address = ipaddress.ip_address(text)
        assert address.is_private
        assert not is_public(address)


@pytest.mark.parametrize(
    ("entry", "ip", "port", "host", "is_open"),
    [
        ("127.0.0.1:8000", "127.0.0.1", 8000, "127.0.0.1", True),
        ("127.0.0.1:8000", "127.0.0.1", 8001, "127.0.0.1", False),
        ("127.0.0.1:8000", "127.0.0.2", 8000, "127.0.0.2", False),
        ("127.0.0.1:8000", "::ffff:127.0.0.1", 8000, "[::ffff:7f00:1]", True),
        ("127.0.0.1:80", "127.0.0.1", 80, "127.0.0.1", True),
        ("127.0.0.1:443", "127.0.0.1", 443, "127.0.0.1", True),
        ("Intranet.Example:8080", "10.9.8.7", 8080, "intranet.example", True),
        ("intranet.example:8080", "10.9.8.7", 8080, "other.example", False),
        ("intranet.example:8080", "10.9.8.7", 80, "intranet.example", False),
        ("intranet.example:8080", "10.9.8.7", 8080, "sub.intranet.example", False),
        ("[::1]:8000", "::1", 8000, "[::1]", True),
        ("10.20.0.0/16", "10.20.3.4", 9999, "x.example", True),
        ("10.20.0.0/16", "10.21.0.1", 9999, "x.example", False),
        ("10.20.0.0/16:8080", "10.20.3.4", 8080, "x.example", True),
        ("10.20.0.0/16:8080", "10.20.3.4", 80, "x.example", False),
        ("fd00::/8", "fd12::1", 80, "x.example", True),
        ("[fd00::/8]:8080", "fd12::1", 8080, "x.example", True),
        ("[fd00::/8]:8080", "fd12::1", 80, "x.example", False),
        ("10.1.1.1", "10.1.1.1", 1234, "10.1.1.1", True),
    ],
)
def test_allow_list(entry: str, ip: str, port: int, host: str, is_open: bool) -> None:
    """An entry opens exactly what it names."""
    assert _open(AddressGuard([entry]), ip, port, host) is is_open


@pytest.mark.parametrize(
    "entry", ["example.com", "http://example.com/", "10.0.0.0/99", "host:port", "", "a/b:80", "h:0x1"]
)
def test_wrong_entries(entry: str) -> None:
    """What is neither host:port nor a network is refused by name."""
    with pytest.raises(InvalidParameter) as caught:
        AddressGuard([entry])
    assert caught.value.field == "allow"


def test_the_apps_own_servers_stay_shut() -> None:
    """Database, Redis and broker are refused under every name and address, whatever the allow list says."""
    guard = AddressGuard(
        ["127.0.0.0/8", "10.0.0.0/8", "::1", "db.internal:5432", "127.0.0.1:6379"],
        denied=[("localhost", 6379), ("db.internal", 5432), ("93.184.216.34", 5672)],
        addresses_of={"localhost": ["127.0.0.1"], "db.internal": ["10.0.0.5"]}.__getitem__,
    )
    for ip in ("127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "::ffff:127.0.0.1"):
        assert not _open(guard, ip, 6379)
    assert not _open(guard, "10.0.0.5", 5432, "innocent.example")
    assert not _open(guard, "10.0.0.6", 5432, "DB.internal")
    assert not _open(guard, "93.184.216.34", 5672)
    assert _open(guard, "127.0.0.1", 8000)
    assert _open(guard, "10.0.0.5", 80)
    assert _open(guard, "93.184.216.34", 80)


def test_a_name_that_cannot_be_resolved_is_denied_by_name() -> None:
    """An own server that DNS does not know today is still refused by its name."""

    def unknown(host: str) -> list[str]:
        raise OSError(host)

    guard = AddressGuard(["10.0.0.0/8"], denied=[("db.internal", 5432)], addresses_of=unknown)
    assert not _open(guard, "10.0.0.5", 5432, "db.internal")


def test_the_message_says_the_remedy() -> None:
    """Who meets the guard is told the setting that opens the address."""
    with pytest.raises(FetchError, match=r"intern\.example:8080.*SPIDERPOOL_ALLOW_ADDRESSES") as caught:
        AddressGuard().check("10.0.0.1", 8080, "intern.example")
    assert caught.value.reason == Reason.BLOCKED_ADDRESS
    assert not caught.value.retry
