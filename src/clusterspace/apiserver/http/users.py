"""Who is asking, as authentication found out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"


def _no_extra() -> Mapping[str, tuple[str, ...]]:
    return {}


@dataclass(frozen=True, slots=True)
class User:
    """A user with groups, as Kubernetes knows them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=_no_extra)


ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))
