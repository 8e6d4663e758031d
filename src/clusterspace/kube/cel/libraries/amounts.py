"""Quantities, such as `500Mi`, and semantic versions, such as `1.2.3-rc.1`."""

import re
from dataclasses import dataclass
from typing import Final

from clusterspace.errors import MalformedQuantity
from clusterspace.kube.cel.faults import EvaluationFailed
from clusterspace.kube.cel.signatures import Function, function, method
from clusterspace.kube.cel.values import INT_RANGE, register_kind
from clusterspace.kube.quantities import Form, Quantity, parse_quantity

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


def _read_quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except MalformedQuantity as error:
        raise EvaluationFailed(error.message) from error


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except MalformedQuantity:
        return False
    return True


def _is_integer(quantity: Quantity) -> bool:
    return quantity.nanos % _NANO == 0 and quantity.nanos // _NANO in INT_RANGE


def _as_integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise EvaluationFailed("cannot convert value to integer")
    return quantity.nanos // _NANO


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.nanos > right.nanos) - (left.nanos < right.nanos)


def _whole(number: int) -> Quantity:
    return Quantity(number * _NANO, Form.DECIMAL)


def _read_semver(text: str) -> Semver:
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise EvaluationFailed(f"{text!r} is not a semantic version")
    parts = (found[4] or "").split(".") if found[4] else []
    order = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
    return Semver((int(found[1]), int(found[2]), int(found[3])), order)


def _compare_versions(left: Semver, right: Semver) -> int:
    return (left.order > right.order) - (left.order < right.order)


def _comparisons(kind: str, compare: object) -> list[Function]:
    def run(left: object, right: object) -> int:
        return compare(left, right)  # type: ignore[operator]

    return [
        method(f"{kind}.compareTo({kind}) -> int", run),
        method(f"{kind}.isGreaterThan({kind}) -> bool", lambda a, b: run(a, b) > 0),
        method(f"{kind}.isLessThan({kind}) -> bool", lambda a, b: run(a, b) < 0),
    ]


FUNCTIONS: Final = (
    *_comparisons("kubernetes.Quantity", _compare),
    *_comparisons("kubernetes.Semver", _compare_versions),
    function("quantity(string) -> kubernetes.Quantity", _read_quantity),
    function("isQuantity(string) -> bool", _is_quantity),
    method("kubernetes.Quantity.isInteger() -> bool", _is_integer),
    method("kubernetes.Quantity.asInteger() -> int", _as_integer),
    method("kubernetes.Quantity.asApproximateFloat() -> double", lambda held: held.nanos / _NANO),
    method(
        "kubernetes.Quantity.add(kubernetes.Quantity) -> kubernetes.Quantity", lambda a, b: a + b
    ),
    method("kubernetes.Quantity.add(int) -> kubernetes.Quantity", lambda a, b: a + _whole(b)),
    method(
        "kubernetes.Quantity.sub(kubernetes.Quantity) -> kubernetes.Quantity", lambda a, b: a - b
    ),
    method("kubernetes.Quantity.sub(int) -> kubernetes.Quantity", lambda a, b: a - _whole(b)),
    function("semver(string) -> kubernetes.Semver", _read_semver),
    function("isSemver(string) -> bool", lambda text: _SEMVER.fullmatch(text) is not None),
    method("kubernetes.Semver.major() -> int", lambda version: version.numbers[0]),
    method("kubernetes.Semver.minor() -> int", lambda version: version.numbers[1]),
    method("kubernetes.Semver.patch() -> int", lambda version: version.numbers[2]),
)
