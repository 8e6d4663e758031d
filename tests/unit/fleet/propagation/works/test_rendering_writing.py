import json
from random import Random

from tests.unit.fleet.propagation.works.work_objects import work

from clusterspace.apis.clusters import WORKS
from clusterspace.client.connection import Connection
from clusterspace.client.requests import resource_path_of
from clusterspace.client.resources import ClusterClient, read_raw_object
from clusterspace.client.settings import ConnectionSettings
from clusterspace.client.watch import Batch, EventType, ObjectChange
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.propagation.works.rendering import KnownWorks
from clusterspace.kube.objects import Object, resource_version_of
from clusterspace.testing.clocks import ManualClock

BINDING = "default/web-deployment"


class Followed:
    """An informer that hears what the test tells it."""

    def __init__(self) -> None:
        settings = ConnectionSettings(cluster="hub", server="https://hub.example")
        connection = Connection(settings, clock=ManualClock(), random=Random(1))
        caches = HubCaches(ClusterClient(connection))
        self.works = caches.shared(KnownWorks)
        self.informer = caches.informer(WORKS)

    def hear(self, event: EventType, held: Object) -> None:
        item = read_raw_object(json.dumps(held).encode())
        self.informer._take(Batch((ObjectChange(event, item),), is_whole=True))

    def versions(self) -> dict[str, str]:
        found = self.works.of_binding(BINDING)
        return {cluster: resource_version_of(each) for cluster, each in found.items()}


def at(version: int, cluster: str = "north") -> Object:
    return work(cluster, resourceVersion=str(version))


async def test_a_work_just_written_is_known_before_the_cache_has_it() -> None:
    followed = Followed()
    followed.hear(EventType.ADDED, at(3, "south"))

    followed.works.note(at(5))

    assert followed.versions() == {"north": "5", "south": "3"}
    place = resource_path_of(WORKS, at(5))
    assert followed.works.find(place.key) == at(5)


async def test_an_older_event_does_not_hide_what_was_written() -> None:
    followed = Followed()
    followed.works.note(at(5))

    followed.hear(EventType.ADDED, at(4))

    assert followed.versions() == {"north": "5"}


async def test_the_cache_has_the_word_again_once_it_is_as_far() -> None:
    followed = Followed()
    followed.works.note(at(5))
    followed.hear(EventType.ADDED, at(5))
    followed.hear(EventType.MODIFIED, at(6))

    assert followed.versions() == {"north": "6"}


async def test_an_event_that_was_faster_than_the_answer_counts() -> None:
    followed = Followed()
    followed.hear(EventType.ADDED, at(6))

    followed.works.note(at(5))

    assert followed.versions() == {"north": "6"}


async def test_a_work_that_was_deleted_is_forgotten() -> None:
    followed = Followed()
    followed.works.note(at(5))
    followed.hear(EventType.DELETED, at(7))
    assert followed.versions() == {}

    followed.works.note(at(8))
    followed.works.forget(resource_path_of(WORKS, at(8)).key)
    assert followed.versions() == {}


async def test_works_of_other_bindings_are_not_among_them() -> None:
    followed = Followed()
    followed.works.note(at(5))

    assert followed.works.of_binding("default/other") == {}
