"""Where a Cluster may be: the form of its address, and the networks no member is reached in.

Whoever says where a member is sends the hub there, with credentials. So an endpoint is https and a
plain host, and the addresses that mean "this machine", "this link" or "the cloud that runs us" are
refused, unless the operator allows their range.

    https://10.0.0.7:6443                      fine; private networks are where clusters live
    https://rancher.example.com/k8s/c-1        fine
    https://127.0.0.1:6443                     refused; --allow-member-cidrs 127.0.0.0/8 allows it
    http://… file://… https://user@…           refused

A name says nothing about its address, and one whose owner changes its answer between a check and
the connection would lead a checked request anywhere. So nothing here is looked up twice: what is
judged is the socket address itself, in the moment before it is connected to. A name that leads to
one refused address is refused as a whole, for whoever answers so is up to something.

Settings that a kubeconfig made carry no rules: they are the operator's own word.
"""

import asyncio
import errno
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias, cast
from urllib.parse import SplitResult, urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object, find_at

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

ALLOW_FLAG: Final = "--allow-member-cidrs"

LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
"""Where simulated members are, and others on this machine."""

_LOOPBACK: Final = "a loopback address"
_LINK_LOCAL: Final = "a link-local address"
_METADATA: Final = "a cloud's metadata service"
_UNSPECIFIED: Final = "an unspecified address"
_MULTICAST: Final = "a multicast address"

_REFUSED: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", _UNSPECIFIED),
        ("127.0.0.0/8", _LOOPBACK),
        ("169.254.169.254/32", _METADATA),
        ("169.254.0.0/16", _LINK_LOCAL),
        ("100.100.100.200/32", _METADATA),
        ("168.63.129.16/32", _METADATA),
        ("192.0.0.192/32", _METADATA),
        ("224.0.0.0/4", _MULTICAST),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", _UNSPECIFIED),
        ("::1/128", _LOOPBACK),
        ("::/96", "an IPv4 address written as IPv6"),
        ("::ffff:0:0/96", "an IPv4 address written as IPv6"),
        ("fe80::/10", _LINK_LOCAL),
        ("fd00:ec2::254/128", _METADATA),
        ("fd20:ce::254/128", _METADATA),
        ("ff00::/8", _MULTICAST),
    )
)
"""In the order they are looked at: the first that holds an address says what it is."""

_NAT64: Final = ip_network("64:ff9b::/96")

_PRINTABLE: Final = re.compile(r"[!-~]+")
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_NUMERIC: Final = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")
"""How the last label of a name never looks; `127.1` and `0x7f000001` are addresses to some."""
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~:@-]+)*/?")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[ -~\t]*")
_LONGEST_NAME: Final = 253

_PROXY_SCHEMES: Final = ("http", "https", "socks5")
"""Karmada's. A proxy carries the TLS stream to the member and does not see into it."""


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Which addresses members may have."""

    allowed: tuple[Network, ...] = ()
    """What the operator allows of that which is refused otherwise."""
    hub_addresses: frozenset[Address] = field(default_factory=frozenset[Address])
    """Where the hub itself is: a request that comes from the hub is trusted there."""

    def allows(self, address: Address) -> bool:
        """Whether the operator names a range that an address is in: then nothing else counts."""
        return any(address in network for network in self.allowed)

    def problem_with(self, address: Address) -> str:
        """Return which kind of refused address it is, in words for a sentence; else empty."""
        if self.allows(address):
            return ""
        for network, what in _REFUSED:
            if address in network:
                return what
        if address in self.hub_addresses:
            return "an address of the hub's own"
        embedded = _embedded_in(address)
        return self.problem_with(embedded) if embedded is not None else ""


def advice(what: str) -> str:
    """Return why an address is refused and what the operator can do, for the end of a sentence."""
    return f"it is {what}, where no member is reached unless {ALLOW_FLAG} names its range"


def read_address(host: str) -> Address | None:
    """Return the address a host is written as; None when it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _embedded_in(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 one leads to through a gateway, if it does."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.sixtofour


def endpoint_problem(url: str) -> str:
    """Return the problem with the URL of a member's API; empty if its form is fine."""
    parts = _split(url)
    if isinstance(parts, str):
        return parts
    if parts.scheme != "https":
        return "must begin with https://: credentials never travel in the clear"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user name or password"
    if "?" in url or "#" in url:
        return "must not have a query or fragment"
    segments = parts.path.split("/")
    if not _PATH.fullmatch(parts.path) or not {".", ".."}.isdisjoint(segments):
        return "must have a plain path, or none"
    return ""


def proxy_problem(url: str) -> str:
    """Return the problem with the URL of a proxy; empty if its form is fine."""
    parts = _split(url)
    if isinstance(parts, str):
        return parts
    if parts.scheme not in _PROXY_SCHEMES:
        return f"must begin with one of: {', '.join(f'{each}://' for each in _PROXY_SCHEMES)}"
    if "?" in url or "#" in url or parts.path not in ("", "/"):
        return "must not have a path, query or fragment"
    return ""


def _split(url: str) -> SplitResult | str:
    """Return the parts of a URL, or what is wrong with what all URLs have."""
    if not url:
        return "is empty"
    # Before anything is parsed: the standard library drops line breaks and tabs without a word,
    # and others take a backslash for a slash.
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        return "must not hold spaces, control characters, backslashes or letters beyond ASCII"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"cannot be read as a URL: {error}"
    host = parts.hostname or ""
    if not host:
        return "must name a host"
    if port == 0 or parts.netloc.endswith(":"):
        return "must name a port between 1 and 65535, or none"
    if "%" in host:
        return "must not name a network interface"
    if read_address(host) is not None:
        return parts
    if not _NAME.fullmatch(host) or len(host) > _LONGEST_NAME:
        return "must name a host by a DNS name or an address"
    if _NUMERIC.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return "must name a host by a DNS name, or an address in its usual form"
    return parts


def endpoint_causes(cluster: Object, judge: Callable[[str], str]) -> Iterator[Cause]:
    """Yield every reason why no Cluster can be reached as this one says.

    `judge` returns what the address a host is written as may not be; of names it knows nothing.
    """
    for name, problem_of in (("apiEndpoint", endpoint_problem), ("proxyURL", proxy_problem)):
        url = find_at(cluster, "spec", name)
        if not url or not isinstance(url, str):
            continue  # the schema says what is no text
        field_name = f"spec.{name}"
        problem = problem_of(url)
        if problem:
            yield causes.invalid(field_name, url, problem)
            continue
        what = judge(urlsplit(url).hostname or "")
        if what:
            yield causes.invalid(field_name, url, advice(what))
    headers = find_at(cluster, "spec", "proxyHeader")
    if not isinstance(headers, dict):
        return
    for name, value in cast("dict[object, object]", headers).items():
        place = f"spec.proxyHeader[{name}]"
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            yield causes.invalid(place, str(name), "must be the name of an HTTP header")
        if isinstance(value, str) and not _HEADER_VALUE.fullmatch(value):
            yield causes.invalid(place, value, "must not hold control characters")


SocketAddress: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]
"""Family, type, protocol, canonical name and address, as the operating system tells them."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[SocketAddress]]]
"""Looks a host up; OSError when nobody knows it."""

_ANY_PORT: Final = 9
"""Nothing is sent there."""


class RefusedAddress(OSError):
    """An address that members may not have; an OSError so that HTTP libraries let it through."""

    def __init__(self, address: str, what: str) -> None:
        super().__init__(f"{address}: {advice(what)}")
        self.address = address
        self.advice = advice(what)


async def look_up(host: str, port: int) -> Sequence[SocketAddress]:
    """Ask the system for the addresses of a host."""
    # Addresses of a family that this machine has no network for are left out.
    flags = socket.AI_ADDRCONFIG if read_address(host) is None else 0
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)


def refuse(rules: AddressRules | None, address: str) -> None:
    """Raise RefusedAddress unless the rules allow a connection to this address."""
    if rules is None:
        return
    is_readable = read_address(address.partition("%")[0]) is not None
    what = problem_with_host(rules, address) if is_readable else "no internet address"
    if what:
        raise RefusedAddress(address, what)


def problem_with_host(rules: AddressRules, host: str) -> str:
    """Return which kind of refused address a host is; empty if it is allowed, or a name."""
    address = read_address(host.partition("%")[0])
    if address is None or rules.allows(address):
        return ""
    found = rules.problem_with(address)
    if not found and is_of_this_machine(address):
        return "an address of the machine that would connect to it"
    return found


def is_of_this_machine(address: Address) -> bool:
    """Whether an address leads back to this machine.

    The system is asked which of its own addresses it would call from: for one of its own it is the
    very same. Connecting a datagram socket sends nothing.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _ANY_PORT))
            return read_address(probe.getsockname()[0].partition("%")[0]) == address
        except OSError:
            return False  # no way leads there at all


class JudgingResolver(AbstractResolver):
    """Looks names up for a pool of connections, and refuses those that lead astray."""

    def __init__(self, rules: AddressRules | None, resolve: Resolve) -> None:
        self._rules = rules
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host, if all of them may be connected to."""
        found = await judged(self._rules, self._resolve, host, port)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=each_family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for each_family, _, protocol, _, address in found
            if family in (socket.AF_UNSPEC, each_family)
        ]

    async def close(self) -> None:
        """Keep nothing, so there is nothing to close."""


async def judged(
    rules: AddressRules | None, resolve: Resolve, host: str, port: int
) -> Sequence[SocketAddress]:
    """Look a host up once; RefusedAddress when any address it leads to is refused."""
    found = await resolve(host, port)
    for _, _, _, _, address in found:
        refuse(rules, str(address[0]))
    return found


async def dial(
    rules: AddressRules | None, resolve: Resolve, host: str, port: int, seconds: float
) -> socket.socket:
    """Connect to a host, trying its addresses in turn; OSError of the last when none answers."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await judged(rules, resolve, host, port):
        connected = socket.socket(family, kind, protocol)
        connected.setblocking(False)
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_connect(connected, cast("Any", address))
        except TimeoutError:
            connected.close()
            failure = OSError(errno.ETIMEDOUT, "no connection in time")
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise failure
