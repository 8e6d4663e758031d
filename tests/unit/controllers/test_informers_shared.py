"""One informer per collection, made on demand, with the indexes of all who ask for it."""

import json
from collections.abc import Iterable
from random import Random

import pytest

from clusterspace.client.connection import Connection
from clusterspace.client.resources import ClusterClient, ListOptions, read_raw_object
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.informers import HubCaches
from clusterspace.kube.objects import Object, labels_of, name_of
from clusterspace.testing.builders import CONFIG_MAPS, SECRETS, config_map
from clusterspace.testing.clocks import ManualClock


def by_name(kube_object: Object) -> Iterable[str]:
    return (name_of(kube_object),)


def by_color(kube_object: Object) -> Iterable[str]:
    return (labels_of(kube_object).get("color", ""),)


def new_caches() -> HubCaches:
    settings = ConnectionSettings(cluster="hub", server="https://hub.example")
    return HubCaches(ClusterClient(Connection(settings, clock=ManualClock(), random=Random(1))))


class View:
    """Something that is made of caches and has to run."""

    def __init__(self, caches: HubCaches) -> None:
        self.maps = caches.informer(CONFIG_MAPS)

    async def run(self) -> None:
        return


async def test_whoever_asks_for_a_collection_gets_the_same_informer() -> None:
    caches = new_caches()

    assert caches.informer(CONFIG_MAPS) is caches.informer(CONFIG_MAPS)
    assert caches.informer(CONFIG_MAPS) is not caches.informer(SECRETS)
    assert caches.informer(CONFIG_MAPS) is not caches.informer(CONFIG_MAPS, "shop")
    own = ListOptions(field_selector="metadata.name=a")
    assert caches.informer(CONFIG_MAPS, selection=own) is caches.informer(
        CONFIG_MAPS, selection=own
    )


async def test_everybody_s_indexes_are_kept_also_for_what_is_there_already() -> None:
    caches = new_caches()
    cache = caches.informer(CONFIG_MAPS, indexes={"name": by_name}).cache
    red = config_map("a", namespace="shop", labels={"color": "red"}, resourceVersion="1")
    cache.put(read_raw_object(json.dumps(red).encode()))

    caches.informer(CONFIG_MAPS, indexes={"color": by_color, "name": by_name})

    assert cache.keys_at("name", "a") == {"shop/a"}
    assert cache.keys_at("color", "red") == {"shop/a"}
    cache.remove("shop/a")
    assert cache.keys_at("color", "red") == frozenset()


async def test_two_indexes_of_one_name_are_refused() -> None:
    caches = new_caches()
    caches.informer(CONFIG_MAPS, indexes={"word": by_name})

    with pytest.raises(ValueError, match="another index called word"):
        caches.informer(CONFIG_MAPS, indexes={"word": by_color})


async def test_only_what_somebody_asked_for_runs() -> None:
    caches = new_caches()
    view = caches.shared(View)

    assert caches.shared(View) is view
    assert caches.informer(CONFIG_MAPS) is view.maps
    assert list(caches.tasks()) == [f"informer {view.maps.path}", "informer View"]


async def test_what_is_asked_for_while_they_run_would_never_sync() -> None:
    caches = new_caches()
    maps = caches.informer(CONFIG_MAPS)
    caches.tasks()

    assert caches.informer(CONFIG_MAPS) is maps
    with pytest.raises(RuntimeError, match="too late"):
        caches.informer(SECRETS)
    with pytest.raises(RuntimeError, match="too late"):
        caches.shared(View)
