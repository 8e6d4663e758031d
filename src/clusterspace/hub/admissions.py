"""Admission: one write on its way to the store, as the hub's plug-ins see it."""

from dataclasses import dataclass

from clusterspace.hub.catalog import Served
from clusterspace.kube.objects import Object
from clusterspace.serving.users import User


@dataclass(frozen=True, slots=True)
class Admission:
    """One write on its way to the store."""

    served: Served
    user: User
    new: Object
    old: Object | None = None
    """What the write replaces; None for a new object."""
    subresource: str = ""

    @property
    def is_create(self) -> bool:
        """Whether the object is new."""
        return self.old is None

    def is_of(self, group: str, kind: str) -> bool:
        """Whether the object is of this kind."""
        return (self.served.info.group, self.served.info.kind) == (group, kind)
