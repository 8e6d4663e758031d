"""New objects as the plug-ins of an API server complete them, without a server."""

import asyncio
from random import Random

from clusterspace.apiserver.admission.plugins import kubernetes_plugins
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.testing.clocks import ManualClock

CATALOG = Catalog(builtin_resources())
SERVED = {each.info.group_version_kind: each for each in CATALOG.all()}
NOT_ASKED = {"NamespaceLifecycle", "ServiceAccount"}
"""What these say depends on what else there is, and there is nothing."""


def admitted(kind: GroupVersionKind, new: Object) -> Object:
    """Return a new object as it is before its kind's rules; kinds that are not stored as it was."""
    served = SERVED.get(kind)
    if served is None:
        return new

    async def mutated() -> Object:
        store = MemoryStore()
        plugins = [
            each for each in kubernetes_plugins(is_hub=True) if type(each).__name__ not in NOT_ASKED
        ]
        hub = HubState(
            store=store,
            catalog=CATALOG,
            feeds=Feeds(store),
            clock=ManualClock(),
            random=Random(1),
            new_uid=lambda: "",
            plugins=tuple(plugins),
        )
        return await hub.mutate(Admission(served, User("admin", ()), new))

    return asyncio.run(mutated())
