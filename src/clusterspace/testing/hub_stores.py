"""Where the hubs of a test keep their objects: in files of their own, or all of them in one etcd.

`hubs_on_etcd` chooses for a whole run, and for the programs that it forks: those find the etcd in
their environment (`ETCD`). Every hub has a prefix of its own there, made of its data directory; one
that was to forget has a new one each time.

`end_namespaces_soon` has them end namespaces half a second after they were deleted, and not five.
"""

import hashlib
import os
import uuid
from dataclasses import replace
from typing import Final

from clusterspace.apiserver.housekeeping import NamespaceController
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.roots import hub, stores
from clusterspace.roots.settings import HubSettings

ETCD: Final = "CLUSTERSPACE_TEST_ETCD"
"""The URL of an etcd; a hub without it has a file."""


async def open_by_environment(settings: HubSettings) -> stores.OpenedStore:
    """Open what the settings name, but etcd in place of a file where the environment has one."""
    url = os.environ.get(ETCD)
    if url is None or settings.etcd is not None:  # or the test has one of its own
        return await stores.open_store(settings)
    prefix = uuid.uuid4().hex
    if settings.store != "memory":
        prefix = hashlib.sha256(str(settings.data_dir.resolve()).encode()).hexdigest()
    return await stores.open_store(replace(settings, etcd=EtcdSettings((url,), f"/{prefix}")))


def obey_environment() -> None:
    """Have the hubs of this process open what the environment says, whenever they do."""
    hub.open_store = open_by_environment


def end_namespaces_soon() -> None:
    """Have the hubs and simulated members of this process be quick with deleted namespaces."""
    NamespaceController.grace_seconds = 0.5
