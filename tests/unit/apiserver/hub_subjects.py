"""Hub parts for unit tests: served resources, stored entries, a hub without disk or time."""

from random import Random
from typing import Any

from clusterspace.apiserver import forms
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.kube.objects import Object
from clusterspace.testing.clocks import ManualClock

CATALOG = Catalog(builtin_resources())


def served(group: str, version: str, plural: str) -> Served:
    found = CATALOG.find(group, version, plural)
    assert found is not None
    return found


CONFIG_MAPS = served("", "v1", "configmaps")
PODS = served("", "v1", "pods")


def entry_of(kube_object: Object, resource: Served = CONFIG_MAPS, revision: int = 7) -> KeyValue:
    """Return an object as the store holds it."""
    metadata = kube_object["metadata"]
    key = resource.key(metadata.get("namespace", ""), metadata["name"])
    stored = forms.encode_stored(kube_object, resource.form)
    return KeyValue(key, stored, Revision(revision), Revision(revision))


def config_map(name: str = "web", **metadata: Any) -> Object:
    data = metadata.pop("data", {"k": "v"})
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "data": data,
    }


def hub_state(store: MemoryStore | None = None, clock: ManualClock | None = None) -> HubState:
    held = store or MemoryStore()
    numbers = iter(range(10_000))
    return HubState(
        store=held,
        catalog=CATALOG,
        feeds=Feeds(held),
        clock=clock or ManualClock(),
        random=Random(1),
        new_uid=lambda: f"uid-{next(numbers)}",
    )
