"""Which release of Kubernetes each cluster runs, and which one the fleet claims to be.

The fleet claims the oldest: what clients of that release do, every member understands.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.fleet.gateway import names
from clusterspace.fleet.gateway.flow import HUB
from clusterspace.kube.objects import Object

_GIT_VERSION: Final = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release by its numbers; what distributors add to them is left out."""

    major: int = 0
    minor: int = 0
    patch: int = 0


UNKNOWN: Final = Release()


def read_release(version: Object) -> Release:
    """Read what a cluster answers at /version; UNKNOWN, below all others, if it makes no sense."""
    found = _GIT_VERSION.match(str(version.get("gitVersion") or ""))
    if found is None:
        return UNKNOWN
    major, minor, patch = found.groups(default="0")
    return Release(int(major), int(minor), int(patch))


def merge(versions: Mapping[str, Object]) -> Object | None:
    """Return what the fleet answers at /version: the oldest member's words, else the hub's."""
    members = [
        (read_release(versions[cluster]), versions[cluster])
        for cluster in names.in_order(versions)
        if cluster != HUB
    ]
    known = [each for each in members if each[0] != UNKNOWN]
    if known:
        return min(known, key=lambda each: each[0])[1]
    return versions.get(HUB)
