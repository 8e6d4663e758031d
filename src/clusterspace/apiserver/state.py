"""What verbs work on: one hub, and one write to it as admission plug-ins see it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from clusterspace.aio.clocks import Clock
from clusterspace.aio.lanes import Run, at_once
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.conversion import Webhooks
from clusterspace.apiserver.encoded_objects import EncodedObjects
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.store.interface import Store
from clusterspace.kube.objects import Object
from clusterspace.kube.times import format_time


def ignore_warning(text: str) -> None:
    """Drop a warning: the hub writes on its own account, and nobody waits for an answer."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, where warnings for them go, and where long steps are carried out."""

    user: User
    warn: Callable[[str], None] = ignore_warning
    run: Run = at_once


@dataclass(frozen=True, slots=True)
class Admission:
    """One write on its way to the store."""

    served: Served
    user: User
    new: Object
    old: Object | None = None
    """What the write replaces; None for a new object."""
    subresource: str = ""
    warn: Callable[[str], None] = ignore_warning
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


class Plugin(Protocol):
    """An admission rule: it comes between the rules of an object's kind and the store."""

    async def admit(self, hub: "HubState", admission: Admission) -> Object:
        """Return the object to store, changed or not; raise an ApiError to refuse it."""
        ...


@dataclass(frozen=True, slots=True)
class HubState:
    """One hub. Verbs take it as their first argument and hold nothing themselves."""

    store: Store
    catalog: Catalog
    feeds: Feeds
    clock: Clock
    random: Random
    new_uid: Callable[[], str]
    plugins: tuple[Plugin, ...] = ()
    """Admission, in the order in which it is asked."""
    webhooks: Webhooks = field(default_factory=Webhooks)
    encoded: EncodedObjects = field(default_factory=EncodedObjects)
    """What has been answered in protobuf lately."""

    async def admit(self, admission: Admission) -> Object:
        """Return the object to store: every plug-in sees what the one before it returned."""
        for plugin in self.plugins:
            changed = await plugin.admit(self, admission)
            if changed is not admission.new:
                admission = replace(admission, new=changed)
        return admission.new

    def timestamp(self) -> str:
        """Return the time as objects carry it."""
        return format_time(self.clock.now())
