"""Kubernetes' additions: URLs, IP addresses, quantities, semantic versions and named formats."""

import operator
import re
from collections.abc import Callable, Mapping
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

from clusterspace.errors import MalformedQuantity
from clusterspace.kube import names
from clusterspace.kube.causes import quoted
from clusterspace.kube.cel.types import Library
from clusterspace.kube.cel.values import (
    INT_RANGE,
    NONE,
    EvaluationFailed,
    Optional,
    register_kind,
)
from clusterspace.kube.quantities import Form, Quantity, parse_quantity

LIBRARY: Final = Library()

# URLs, IP addresses and CIDR blocks.

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


@LIBRARY.function("url(string) -> kubernetes.URL")
def _read_url(text: str) -> Url:
    found = _find_url(text)
    if found is None:
        why = f"parse {quoted(text)}: invalid URI for request"
        raise EvaluationFailed(f"URL parse error during conversion from string: {why}")
    return found


@LIBRARY.method("kubernetes.URL.getQuery() -> map(string, list(string))")
def _query_of(url: Url) -> dict[str, list[str]]:
    query: dict[str, list[str]] = {}
    for pair in filter(None, url.parts.query.split("&")):
        key, _, value = pair.partition("=")
        query.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return query


def _find_address(text: str) -> Address | None:
    # Zones and addresses of the one family written as the other are refused, as Kubernetes does.
    if "%" in text:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return None if isinstance(address, IPv6Address) and address.ipv4_mapped else address


@LIBRARY.function("ip(string) -> net.IP")
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


@LIBRARY.function("cidr(string) -> net.CIDR")
def _read_block(text: str) -> Block:
    found = _find_block(text)
    if found is None:
        raise EvaluationFailed(
            f"network address parse error during conversion from string: {text!r}"
        )
    return found


def _contains_address(block: Block, address: Address) -> bool:
    return block.version == address.version and address in block.network


def _contains_block(block: Block, other: Block) -> bool:
    if block.version != other.version or block.network.prefixlen > other.network.prefixlen:
        return False
    return other.network.network_address in block.network


@LIBRARY.method("net.IP.isGlobalUnicast() -> bool")
def _is_global(address: Address) -> bool:
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


@LIBRARY.method("net.IP.isLinkLocalMulticast() -> bool")
def _is_link_local_multicast(address: Address) -> bool:
    block = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return _contains_address(ip_interface(block), address)


LIBRARY.functions(
    {
        "isURL(string) -> bool": lambda text: _find_url(text) is not None,
        "isIP(string) -> bool": lambda text: _find_address(text) is not None,
        "ip.isCanonical(string) -> bool": lambda text: str(_read_address(text)) == text,
        "string(net.IP) -> string": str,
        "isCIDR(string) -> bool": lambda text: _find_block(text) is not None,
        "string(net.CIDR) -> string": str,
    }
)
LIBRARY.methods(
    {
        "kubernetes.URL.getScheme() -> string": lambda url: url.parts.scheme,
        "kubernetes.URL.getHost() -> string": lambda url: url.host,
        "kubernetes.URL.getHostname() -> string": lambda url: url.hostname,
        "kubernetes.URL.getPort() -> string": lambda url: url.port,
        "kubernetes.URL.getEscapedPath() -> string": lambda url: quote(
            url.parts.path, safe="/%:@!$&'()*+,;=~"
        ),
        "net.IP.family() -> int": lambda address: address.version,
        "net.IP.isUnspecified() -> bool": lambda address: address.is_unspecified,
        "net.IP.isLoopback() -> bool": lambda address: address.is_loopback,
        "net.IP.isLinkLocalUnicast() -> bool": lambda address: address.is_link_local,
        "net.CIDR.containsIP(net.IP) -> bool": _contains_address,
        "net.CIDR.containsIP(string) -> bool": lambda block, text: _contains_address(
            block, _read_address(text)
        ),
        "net.CIDR.containsCIDR(net.CIDR) -> bool": _contains_block,
        "net.CIDR.containsCIDR(string) -> bool": lambda block, text: _contains_block(
            block, _read_block(text)
        ),
        "net.CIDR.ip() -> net.IP": lambda block: block.ip,
        "net.CIDR.masked() -> net.CIDR": lambda block: ip_interface(str(block.network)),
        "net.CIDR.prefixLength() -> int": lambda block: block.network.prefixlen,
    }
)


# Quantities and semantic versions.

_NANO: Final = 10**9
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; builds do not count."""

    numbers: tuple[int, int, int]
    prerelease: tuple[tuple[int, int, str], ...]

    @property
    def order(self) -> tuple[object, ...]:
        """What versions are compared by: a release is above its prereleases."""
        return (self.numbers, not self.prerelease, self.prerelease)


register_kind(Semver, "kubernetes.Semver")


@LIBRARY.function("quantity(string) -> kubernetes.Quantity")
def _read_quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except MalformedQuantity as error:
        raise EvaluationFailed(error.message) from error


@LIBRARY.function("isQuantity(string) -> bool")
def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except MalformedQuantity:
        return False
    return True


@LIBRARY.method("kubernetes.Quantity.isInteger() -> bool")
def _is_integer(quantity: Quantity) -> bool:
    return quantity.nanos % _NANO == 0 and quantity.nanos // _NANO in INT_RANGE


@LIBRARY.method("kubernetes.Quantity.asInteger() -> int")
def _as_integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise EvaluationFailed("cannot convert value to integer")
    return quantity.nanos // _NANO


def _whole(number: int) -> Quantity:
    return Quantity(number * _NANO, Form.DECIMAL)


@LIBRARY.function("semver(string) -> kubernetes.Semver")
def _read_semver(text: str) -> Semver:
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise EvaluationFailed(f"{text!r} is not a semantic version")
    parts = (found[4] or "").split(".") if found[4] else []
    order = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
    return Semver((int(found[1]), int(found[2]), int(found[3])), order)


def _compare_quantities(left: Quantity, right: Quantity) -> int:
    return (left.nanos > right.nanos) - (left.nanos < right.nanos)


def _compare_versions(left: Semver, right: Semver) -> int:
    return (left.order > right.order) - (left.order < right.order)


LIBRARY.functions({"isSemver(string) -> bool": lambda text: _SEMVER.fullmatch(text) is not None})
LIBRARY.methods(
    {
        "kubernetes.Quantity.compareTo(kubernetes.Quantity) -> int": _compare_quantities,
        "kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) -> bool": lambda left, right: (
            _compare_quantities(left, right) > 0
        ),
        "kubernetes.Quantity.isLessThan(kubernetes.Quantity) -> bool": lambda left, right: (
            _compare_quantities(left, right) < 0
        ),
        "kubernetes.Semver.compareTo(kubernetes.Semver) -> int": _compare_versions,
        "kubernetes.Semver.isGreaterThan(kubernetes.Semver) -> bool": lambda left, right: (
            _compare_versions(left, right) > 0
        ),
        "kubernetes.Semver.isLessThan(kubernetes.Semver) -> bool": lambda left, right: (
            _compare_versions(left, right) < 0
        ),
        "kubernetes.Quantity.asApproximateFloat() -> double": lambda quantity: (
            quantity.nanos / _NANO
        ),
        "kubernetes.Quantity.add(kubernetes.Quantity) -> kubernetes.Quantity": operator.add,
        "kubernetes.Quantity.add(int) -> kubernetes.Quantity": lambda quantity, number: (
            quantity + _whole(number)
        ),
        "kubernetes.Quantity.sub(kubernetes.Quantity) -> kubernetes.Quantity": operator.sub,
        "kubernetes.Quantity.sub(int) -> kubernetes.Quantity": lambda quantity, number: (
            quantity - _whole(number)
        ),
        "kubernetes.Semver.major() -> int": lambda version: version.numbers[0],
        "kubernetes.Semver.minor() -> int": lambda version: version.numbers[1],
        "kubernetes.Semver.patch() -> int": lambda version: version.numbers[2],
    }
)


# Named formats, such as DNS labels: `format.dns1123Label().validate(self.name)`.


@dataclass(frozen=True, slots=True)
class Format:
    """A format by its name, and what finds fault with a text."""

    name: str
    problems: Callable[[str], tuple[str, ...]]


register_kind(Format, "kubernetes.NamedFormat")


def _prefix(check: names.NameCheck) -> Callable[[str], tuple[str, ...]]:
    return lambda text: names.prefix_problems(check, text)


_FORMATS: Final[Mapping[str, Format]] = {
    each.name: each
    for each in (
        Format("dns1123Label", names.dns1123_label_problems),
        Format("dns1123Subdomain", names.dns1123_subdomain_problems),
        Format("dns1035Label", names.dns1035_label_problems),
        Format("qualifiedName", names.qualified_name_problems),
        Format("labelValue", names.label_value_problems),
        Format("dns1123LabelPrefix", _prefix(names.dns1123_label_problems)),
        Format("dns1123SubdomainPrefix", _prefix(names.dns1123_subdomain_problems)),
        Format("dns1035LabelPrefix", _prefix(names.dns1035_label_problems)),
    )
}


@LIBRARY.function("format.named(string) -> optional_type(kubernetes.NamedFormat)")
def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found, is_present=True)


@LIBRARY.method("kubernetes.NamedFormat.validate(string) -> optional_type(list(string))")
def _validate(wanted: Format, text: str) -> Optional:
    """Return the problems of the text, if there are any."""
    found = list(wanted.problems(text))
    return Optional(found, is_present=True) if found else NONE


LIBRARY.functions(
    {
        f"format.{each.name}() -> kubernetes.NamedFormat": lambda wanted=each: wanted
        for each in _FORMATS.values()
    }
)


# Keys in the paths of JSON patches.

LIBRARY.functions(
    {"jsonpatch.escapeKey(string) -> string": lambda key: key.replace("~", "~0").replace("/", "~1")}
)
