"""How much there may be in one object, counted while it is read.

Bytes alone do not tell what an object costs: three megabytes are one long text, or a million empty
lists. Whatever is read, compared or written in one step takes time by the number of its parts, so
that number has a limit. It leaves room for every object etcd would take and somebody would write:
an EndpointSlice of 1,000 endpoints has 20,000 parts, a CustomResourceDefinition of 900 KB 70,000.
"""

import math
from typing import Any, Final, cast

from clusterspace.errors import RequestEntityTooLarge

MAX_CONTAINERS: Final = 64 * 1024
"""Lists and objects, empty ones too: each costs about half a microsecond in the decoder."""

MAX_VALUES: Final = 128 * 1024
"""List elements and fields, whatever they hold."""

MAX_STORED_CONTAINERS: Final = 80 * 1024
"""Lists and objects with those that tell who owns which field: one for every field of a map."""

MAX_EXTREME_NUMBERS: Final = 2_000
"""Numbers like 1e300, of which a decoder takes a hundred times as long as of others."""

_PLAIN_EXPONENT: Final = 22
"""Powers of ten up to here are exact, and read at once."""


class Parts:
    """Counts the parts of one object; raises RequestEntityTooLarge when there are too many."""

    __slots__ = ("_containers", "_extremes", "_values")

    def __init__(self) -> None:
        self._containers = self._values = self._extremes = 0

    def add_container(self) -> None:
        """Count a list or an object, and its place in the one around it."""
        self._add_containers(1)

    def add_json(self, text: bytes) -> None:
        """Count what a text has at most: brackets and commas in its strings count, too."""
        self._add_containers(text.count(b"[") + text.count(b"{"))
        self.add_values(text.count(b","))

    def _add_containers(self, count: int) -> None:
        self._containers += count
        if self._containers > MAX_CONTAINERS:
            raise _too_large(f"more than {MAX_CONTAINERS} lists and objects")
        self.add_values(count)

    def add_values(self, count: int) -> None:
        """Count elements and fields."""
        self._values += count
        if self._values > MAX_VALUES:
            raise _too_large(f"more than {MAX_VALUES} values")

    def add_number(self, number: float) -> None:
        """Count a number that is written with a point or an exponent."""
        self.add_values(1)
        if number and abs(math.log10(abs(number))) > _PLAIN_EXPONENT:
            self._extremes += 1
            if self._extremes > MAX_EXTREME_NUMBERS:
                raise _too_large(f"more than {MAX_EXTREME_NUMBERS} numbers of extreme size")


def refuse_too_many(kube_object: Any) -> None:
    """Raise RequestEntityTooLarge for an object that has grown too many parts to be kept."""
    level: list[Any] = [kube_object]
    count = 0
    while level:
        inner: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                inner += [
                    each
                    for each in cast("dict[str, Any]", node).values()
                    if isinstance(each, dict | list)
                ]
            else:
                inner += [each for each in node if isinstance(each, dict | list)]
        count += len(inner)
        if count > MAX_STORED_CONTAINERS:
            raise RequestEntityTooLarge(
                f"the object would have more than {MAX_STORED_CONTAINERS} lists and objects when "
                "stored, with the record of who owns which field; split the object"
            )
        level = inner


def _too_large(why: str) -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: {why} in one body; split the object")
