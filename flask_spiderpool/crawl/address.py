"""The address guard: the crawler reaches public addresses and what the operator named, nothing else.

The guard is asked by the transport for every socket just before it connects, literal and resolved addresses
alike, so neither a redirect nor a name that resolves to another address the second time goes round it.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache

from flask_spiderpool.crawl.urls import resolve
from flask_spiderpool.errors import FetchError, InvalidParameter
from flask_spiderpool.terms import Reason

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Written out, since ``ipaddress.is_global`` changed its answers between patch releases of Python.
# Source: the special-purpose address registries of IANA (RFC 6890) and multicast (RFC 5771).
_SPECIAL_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network; 0.0.0.0 connects to the machine itself
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT; some clouds' metadata (100.100.100.200)
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local; the clouds' metadata (169.254.169.254)
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; metadata of one cloud (192.0.0.192)
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relay, deprecated
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarking
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")  # all that is globally routed today
_SPECIAL_V6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments, with Teredo (2001::/32), ORCHID, benchmarking
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def _system_addresses(host: str) -> Iterable[str]:
    return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


class AddressGuard:
    """Decides whether a connection to one address may be opened.

    ``allow`` opens addresses that are not public. An entry is ``host:port`` (the host exactly as the URL
    names it, a name or an address), a network (``10.20.0.0/16``, ``fd00::/8``, one address), or a network
    with a port (``10.20.0.0/16:8080``, ``[fd00::/8]:8080``). ``denied`` are the host and port of the app's
    own database, Redis and broker: they stay shut whatever ``allow`` says. Their names are resolved here,
    once, which may block: build the guard outside the event loop. A wrong entry raises
    :class:`~flask_spiderpool.errors.InvalidParameter`.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        *,
        denied: Iterable[tuple[str, int]] = (),
        addresses_of: Callable[[str], Iterable[str]] = _system_addresses,
    ) -> None:
        self.allow = tuple(allow)
        self.denied = frozenset((host.lower().strip("[]"), port) for host, port in denied)
        self._hosts: set[tuple[str, int]] = set()
        self._networks: list[tuple[Network, int | None]] = []
        for entry in self.allow:
            self._add(entry)
        self._denied_addresses = {
            (address, port) for host, port in self.denied for address in _known_addresses(host, addresses_of)
        }
        self._denied_ports = frozenset(port for _, port in self.denied)

    def check(self, ip: str, port: int, host: str) -> None:
        """Raise ``FetchError(blocked_address)`` unless ``ip:port``, reached by the name ``host``, is open to us."""
        address = _parse_address(ip)
        if address is None:
            raise FetchError(Reason.BLOCKED_ADDRESS, f"{ip!r} is not an address")
        host = host.lower().strip("[]").removesuffix(".")
        if port in self._denied_ports and self._is_denied(address, port, host):
            raise FetchError(Reason.BLOCKED_ADDRESS, f"{host}:{port} serves this application itself")
        if is_public(address) or (host, port) in self._hosts or (str(address), port) in self._hosts:
            return
        if any(
            address.version == network.version and address in network and only_port in (None, port)
            for network, only_port in self._networks
        ):
            return
        raise FetchError(
            Reason.BLOCKED_ADDRESS,
            f"{host}:{port} is at {address}, which is not a public address; "
            f"an operator may open it by adding '{host}:{port}' to SPIDERPOOL_ALLOW_ADDRESSES",
        )

    def _is_denied(self, address: Address, port: int, host: str) -> bool:
        if (host, port) in self.denied or (address, port) in self._denied_addresses:
            return True
        # One loopback listener answers under many addresses (127.0.0.2, ::1, 0.0.0.0).
        return _is_this_machine(address) and any(
            port == denied_port and _is_this_machine(denied) for denied, denied_port in self._denied_addresses
        )

    def _add(self, entry: str) -> None:
        fault = InvalidParameter(
            "allow", f"{entry!r} is neither host:port nor a network such as '10.0.0.0/8' or '10.0.0.0/8:8080'"
        )
        network, port = _parse_network(entry)
        if network is not None:
            self._networks.append((network, port))
            return
        scheme = "https" if entry.endswith(":80") else "http"  # a scheme whose default port it is not
        try:
            host, colon, digits = resolve(f"{scheme}://{entry}/").host_key.rpartition(":")
        except FetchError:
            raise fault from None
        if not colon or not digits.isdigit() or any(char in entry for char in "/?#@"):
            raise fault
        self._hosts.add((host.strip("[]"), int(digits)))


def is_public(address: Address) -> bool:
    """Tell whether an address is globally routable unicast; addresses that wrap an IPv4 one are judged by that."""
    return _is_public(address)


@lru_cache(maxsize=4096)
def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = _embedded_v4(address)
    if inner is not None:
        return _is_public(inner)
    return address in _UNICAST_V6 and not any(address in network for network in _SPECIAL_V6)


def _embedded_v4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address(address.packed[2:6])
    if address in _NAT64:
        return ipaddress.IPv4Address(address.packed[12:])
    return None


def _parse_address(text: str) -> Address | None:
    """Return an address; IPv4 mapped into IPv6 becomes the IPv4 address that the kernel connects to."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _parse_network(entry: str) -> tuple[Network | None, int | None]:
    """Return (network, port or None) of an entry, or (None, None) if it names a host."""
    text, port = entry, None
    head, colon, digits = entry.rpartition(":")
    bracketed = entry.startswith("[")
    if colon and digits.isdigit() and (head.endswith("]") if bracketed else ":" not in head):
        text, port = head, int(digits)
    try:
        network = ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None, None
    return network, port


def _known_addresses(host: str, addresses_of: Callable[[str], Iterable[str]]) -> set[Address]:
    """Return the addresses of one of the app's own servers; a name that cannot be resolved has none."""
    literal = _parse_address(host)
    if literal is not None:
        return {literal}
    try:
        found = {_parse_address(text) for text in addresses_of(host)}
    except (OSError, UnicodeError):
        return set()
    return {address for address in found if address is not None}


def _is_this_machine(address: Address) -> bool:
    return address.is_loopback or address.is_unspecified
