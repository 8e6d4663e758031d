"""Admission: one write on its way to the store, as the hub's plug-ins see it."""

from collections.abc import Callable
from dataclasses import dataclass

from clusterspace.aio.lanes import Run, at_once
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.users import User
from clusterspace.kube.objects import Object


def tell_nobody(text: str) -> None:
    """Drop a warning: the hub writes on its own account, and nobody waits for an answer."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, and how they are told what they should know."""

    user: User
    warn: Callable[[str], None] = tell_nobody
    run: Run = at_once
    """Where steps that take time by the size of the object are carried out."""


@dataclass(frozen=True, slots=True)
class Admission:
    """One write on its way to the store."""

    served: Served
    user: User
    new: Object
    old: Object | None = None
    """What the write replaces; None for a new object."""
    subresource: str = ""
    warn: Callable[[str], None] = tell_nobody
    """Adds a Warning header to the answer; the same text any number of times adds one."""
    run: Run = at_once
    """Where to carry out a step that takes time by the size of the object."""

    @property
    def is_create(self) -> bool:
        """Whether the object is new."""
        return self.old is None

    def is_of(self, group: str, kind: str) -> bool:
        """Whether the object is of this kind."""
        return (self.served.info.group, self.served.info.kind) == (group, kind)
