"""Resource quantities such as `500m`, `1.5Gi` and `2e3`: exact values with one canonical text.

A quantity is a whole number of billionths, because Kubernetes rounds anything finer up to one:
whoever asks for some of a resource gets some. No floating point anywhere.

    parse_quantity("1.5Gi")  prints as "1536Mi"
    parse_quantity("0.5")    prints as "500m"
    parse_quantity("100e3")  prints as "100e3"

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from clusterspace.errors import MalformedQuantity

_NANO: Final = 10**9

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[eEinumkKMGTP]*[-+]?[0-9]*)"
)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,9})")

_DECIMAL_EXPONENTS: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BINARY_EXPONENTS: Final = {
    suffix: 10 * power for power, suffix in enumerate(_BINARY_SUFFIXES) if suffix
}

# Kubernetes has no limit here and pays for it in memory; no machine has 10^300 of anything.
_LONGEST_TEXT: Final = 300
_LARGEST_EXPONENT: Final = 300

# Kubernetes caps binary quantities, and only those, where its integers end.
_LARGEST_BINARY: Final = (2**63 - 1) * _NANO

_BAD_SHAPE: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_BAD_NUMBER: Final = "unable to parse numeric part of quantity"
_BAD_SUFFIX: Final = "unable to parse quantity's suffix"


class Form(Enum):
    """Which family of suffixes a quantity is written with."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount; equal and ordered by amount, whatever the form."""

    nanos: int
    form: Form = field(default=Form.DECIMAL, compare=False)
    written: str = field(default="", compare=False, repr=False)
    """The text it was read from, where Kubernetes would print that again unchanged."""

    @property
    def whole(self) -> int:
        """The amount rounded up to a whole number."""
        return -(-self.nanos // _NANO)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded up."""
        return -(-self.nanos // (_NANO // 1000))

    def __add__(self, other: "Quantity") -> "Quantity":
        # Adding to nothing yet takes the other's form: a sum of Mi should read in Mi.
        return Quantity(self.nanos + other.nanos, self.form if self.nanos else other.form)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return self + -other

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.form)

    def __mul__(self, times: int) -> "Quantity":
        return Quantity(self.nanos * times, self.form)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        """Return the text it was read from, or the one without fraction and the largest suffix."""
        nanos, form = self.nanos, self.form
        if self.written or not nanos:
            return self.written or "0"
        if form is Form.BINARY and abs(nanos) >= 1024 * _NANO and nanos % _NANO == 0:
            whole, power = nanos // _NANO, 0
            while whole % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
                whole //= 1024
                power += 1
            return f"{whole}{_BINARY_SUFFIXES[power]}"
        exponent = -9
        while nanos % 1000 == 0:
            nanos //= 1000
            exponent += 3
        if form is not Form.EXPONENT and exponent in _DECIMAL_SUFFIXES:
            return f"{nanos}{_DECIMAL_SUFFIXES[exponent]}"
        return f"{nanos}e{exponent}" if exponent else f"{nanos}"


ZERO: Final = Quantity(0)


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Read a quantity, or raise MalformedQuantity."""
    if len(text) > _LONGEST_TEXT:
        raise MalformedQuantity(_BAD_NUMBER, place=f"{text[:20]}...")
    found = _QUANTITY.fullmatch(text)
    if found is None or not text:
        raise MalformedQuantity(_BAD_SHAPE, place=text)
    # No digits are a zero, against the expression in the message: Kubernetes takes "Ki" and "-".
    whole, fraction = found["whole"].lstrip("0") or "0", found["fraction"] or ""
    suffix = found["suffix"]
    # The exponent is of two in the binary form, of ten in the others.
    if suffix in _DECIMAL_EXPONENTS:
        form, exponent = Form.DECIMAL, _DECIMAL_EXPONENTS[suffix]
    elif suffix in _BINARY_EXPONENTS:
        form, exponent = Form.BINARY, _BINARY_EXPONENTS[suffix]
    else:
        power = _EXPONENT.fullmatch(suffix)
        if power is None or abs(int(power[1])) > _LARGEST_EXPONENT:
            raise MalformedQuantity(_BAD_SUFFIX, place=text)
        form, exponent = Form.EXPONENT, int(power[1])
    written = text if _is_kept_as_written(whole, fraction, form, exponent) else ""

    amount, scale = int(whole + fraction), 9 - len(fraction)
    if form is Form.BINARY:
        amount *= 2**exponent
    else:
        scale += exponent
    # Billionths, rounded up.
    nanos = amount * 10**scale if scale >= 0 else -(-amount // 10**-scale)
    if form is Form.BINARY:
        nanos = min(nanos, _LARGEST_BINARY)
        form = Form.DECIMAL if 0 < nanos < _NANO else form
    return Quantity(-nanos if found["sign"] == "-" else nanos, form, written)


def _is_kept_as_written(whole: str, fraction: str, form: Form, exponent: int) -> bool:
    """Tell whether Kubernetes takes the text for canonical and prints it again as it was.

    It does not look closely, so `1.500` and `+1` stay as they are while `0.500` becomes
    `500m`. Printing anything else would make every such object differ from itself.
    """
    if form is Form.BINARY:
        room = 14 - len(whole) - exponent * 3 // 10
        return not fraction and room >= 0 and int(whole) % 8 != 0
    digits, scale = whole + fraction, exponent - len(fraction)
    is_short = len(digits) <= 18 and scale >= -9
    is_minimal = not digits.endswith("000") and not digits.startswith("0")
    return is_short and is_minimal and scale % 3 == 0
