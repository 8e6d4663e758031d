"""What the hub's verbs work on: the store, the catalog, and the sources of time and chance."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.admissions import Admission
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.store.interface import Store
from clusterspace.kube.objects import Object
from clusterspace.kube.timestamps import format_time


class Plugin(Protocol):
    """One rule of the hub's own: between an object's rules and the store."""

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
    """The hub's own say in what is written, in the order it is asked."""

    def timestamp(self) -> str:
        """Return the time as objects carry it."""
        return format_time(self.clock.now())
