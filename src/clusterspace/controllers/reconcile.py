"""Request, Done, RequeueAfter, Terminal: what a reconciler is asked and what it may answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from clusterspace.client.places import key_of
from clusterspace.errors import Terminal

__all__ = ["Done", "Outcome", "Reconciler", "Request", "RequeueAfter", "Terminal", "request_for"]


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """Bring one object to where it should be; what happened to it is not told, only that."""

    name: str
    namespace: str = ""
    cluster: str = ""

    @property
    def key(self) -> str:
        """The key of the object in its cache."""
        return key_of(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.cluster}:{self.key}" if self.cluster else self.key


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look again after this time, even if nothing changes."""

    seconds: float


Outcome: TypeAlias = Done | RequeueAfter

Reconciler: TypeAlias = Callable[[Request], Awaitable[Outcome]]
"""Answers Done or RequeueAfter, or raises.

`Terminal` means that trying again cannot help before something changes: it is logged and counted.
Everything else is tried again, later and later.
"""


def request_for(key: str, *, cluster: str = "") -> Request:
    """Return the request for the object with this key."""
    namespace, _, name = key.rpartition("/")
    return Request(name, namespace, cluster)
