"""URLs, IP addresses and CIDR blocks."""

import re
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
)
from typing import Final, TypeAlias
from urllib.parse import SplitResult, quote, unquote_plus, urlsplit

from clusterspace.kube.cel.faults import EvaluationFailed
from clusterspace.kube.cel.signatures import function, method
from clusterspace.kube.cel.values import register_kind
from clusterspace.kube.field_paths import quoted

Address: TypeAlias = IPv4Address | IPv6Address
Block: TypeAlias = IPv4Interface | IPv6Interface


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URL or an absolute path."""

    text: str
    parts: SplitResult

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        host = self.host
        if host.startswith("["):
            return host[1:].partition("]")[0]
        return host.partition(":")[0]

    @property
    def host(self) -> str:
        """The host with its port."""
        return self.parts.netloc.rpartition("@")[2]

    @property
    def port(self) -> str:
        """The port, or nothing."""
        after = self.host.rpartition("]")[2]
        return after.partition(":")[2]


for _address in (IPv4Address, IPv6Address):
    register_kind(_address, "net.IP")
for _block in (IPv4Interface, IPv6Interface):
    register_kind(_block, "net.CIDR")
register_kind(Url, "kubernetes.URL")


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _find_url(text: str) -> Url | None:
    """Read what may stand in a request line: an absolute URL, an absolute path, or a star."""
    has_controls = any(ord(character) < 0x20 or ord(character) == 0x7F for character in text)
    is_absolute = _SCHEME.match(text) or text.startswith("/") or text == "*"
    if has_controls or not is_absolute:
        return None
    # A path of a request may begin with two slashes; there is no host in it.
    place = f"/.{text}" if text.startswith("//") else text
    try:
        parts = urlsplit(place)
    except ValueError:
        return None
    url = Url(text, parts._replace(path=text.partition("?")[0]) if place != text else parts)
    is_port = url.port.isdecimal() or not url.port
    is_broken = " " in parts.netloc or _BROKEN_ESCAPE.search(parts.netloc + parts.path)
    return url if is_port and not is_broken else None


def _read_url(text: str) -> Url:
    found = _find_url(text)
    if found is None:
        why = f"parse {quoted(text)}: invalid URI for request"
        raise EvaluationFailed(f"URL parse error during conversion from string: {why}")
    return found


def _query_of(url: Url) -> dict[str, list[str]]:
    query: dict[str, list[str]] = {}
    for pair in filter(None, url.parts.query.split("&")):
        key, _, value = pair.partition("=")
        query.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return query


def _escaped_path(url: Url) -> str:
    return quote(url.parts.path, safe="/%:@!$&'()*+,;=~")


def _find_address(text: str) -> Address | None:
    # Zones and addresses of the one family written as the other are refused, as Kubernetes does.
    if "%" in text:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return None if isinstance(address, IPv6Address) and address.ipv4_mapped else address


def _read_address(text: str) -> Address:
    found = _find_address(text)
    if found is None:
        why = f"ParseAddr({quoted(text)}): unable to parse IP"
        raise EvaluationFailed(
            f"IP Address {quoted(text)} parse error during conversion from string: {why}"
        )
    return found


def _find_block(text: str) -> Block | None:
    address, slash, length = text.partition("/")
    is_number = length.isdecimal() and length == str(int(length))
    if not slash or not is_number or _find_address(address) is None:
        return None
    try:
        return ip_interface(text)
    except ValueError:
        return None


def _read_block(text: str) -> Block:
    found = _find_block(text)
    if found is None:
        raise EvaluationFailed(
            f"network address parse error during conversion from string: {text!r}"
        )
    return found


def _is_canonical(text: str) -> bool:
    return str(_read_address(text)) == text


def _contains_address(block: Block, address: Address) -> bool:
    return block.version == address.version and address in block.network


def _contains_block(block: Block, other: Block) -> bool:
    if block.version != other.version or block.network.prefixlen > other.network.prefixlen:
        return False
    return other.network.network_address in block.network


def _masked(block: Block) -> Block:
    return ip_interface(str(block.network))


def _is_global(address: Address) -> bool:
    is_broadcast = str(address) == "255.255.255.255"
    special = (
        address.is_unspecified,
        address.is_loopback,
        address.is_multicast,
        address.is_link_local,
        is_broadcast,
    )
    return not any(special)


def _is_link_local_multicast(address: Address) -> bool:
    block = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return _contains_address(ip_interface(block), address)


FUNCTIONS: Final = (
    function("url(string) -> kubernetes.URL", _read_url),
    function("isURL(string) -> bool", lambda text: _find_url(text) is not None),
    method("kubernetes.URL.getScheme() -> string", lambda url: url.parts.scheme),
    method("kubernetes.URL.getHost() -> string", lambda url: url.host),
    method("kubernetes.URL.getHostname() -> string", lambda url: url.hostname),
    method("kubernetes.URL.getPort() -> string", lambda url: url.port),
    method("kubernetes.URL.getEscapedPath() -> string", _escaped_path),
    method("kubernetes.URL.getQuery() -> map(string, list(string))", _query_of),
    function("ip(string) -> net.IP", _read_address),
    function("isIP(string) -> bool", lambda text: _find_address(text) is not None),
    function("ip.isCanonical(string) -> bool", _is_canonical),
    function("string(net.IP) -> string", str),
    method("net.IP.family() -> int", lambda address: address.version),
    method("net.IP.isUnspecified() -> bool", lambda address: address.is_unspecified),
    method("net.IP.isLoopback() -> bool", lambda address: address.is_loopback),
    method("net.IP.isLinkLocalMulticast() -> bool", _is_link_local_multicast),
    method("net.IP.isLinkLocalUnicast() -> bool", lambda address: address.is_link_local),
    method("net.IP.isGlobalUnicast() -> bool", _is_global),
    function("cidr(string) -> net.CIDR", _read_block),
    function("isCIDR(string) -> bool", lambda text: _find_block(text) is not None),
    function("string(net.CIDR) -> string", str),
    method("net.CIDR.containsIP(net.IP) -> bool", _contains_address),
    method(
        "net.CIDR.containsIP(string) -> bool",
        lambda block, text: _contains_address(block, _read_address(text)),
    ),
    method("net.CIDR.containsCIDR(net.CIDR) -> bool", _contains_block),
    method(
        "net.CIDR.containsCIDR(string) -> bool",
        lambda block, text: _contains_block(block, _read_block(text)),
    ),
    method("net.CIDR.ip() -> net.IP", lambda block: block.ip),
    method("net.CIDR.masked() -> net.CIDR", _masked),
    method("net.CIDR.prefixLength() -> int", lambda block: block.network.prefixlen),
)
