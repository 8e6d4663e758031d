"""A join that fails takes back what it made, the latest first, and says what it could not."""

from typing import Any

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.errors import ClusterUnreachable, Forbidden
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.member_access import Journal, foreign_hub, is_of_hub
from clusterspace.kube.objects import Object, name_of


class Shelf:
    """A cluster of one's own: objects by place, and failures on request."""

    def __init__(self) -> None:
        self.held: dict[ResourcePath, Object] = {}
        self.asked = 0
        self.fails_with: Exception | None = None
        self.refuses: set[str] = set()

    async def get(self, place: ResourcePath) -> Object:
        return self.held[place]

    async def find(self, place: ResourcePath) -> Object | None:
        return self.held.get(place)

    async def list_objects(self, place: ResourcePath, options: Any = None) -> list[Object]:
        return [held for at, held in self.held.items() if at.collection == place]

    async def create(self, place: ResourcePath, kube_object: Object, options: Any = None) -> Object:
        name = name_of(kube_object)
        stored = {**kube_object, "metadata": {**kube_object["metadata"], "uid": f"uid-of-{name}"}}
        self.held[place.named(name)] = stored
        return stored

    async def update(self, place: ResourcePath, kube_object: Object, options: Any = None) -> Object:
        raise NotImplementedError

    async def patch(
        self, place: ResourcePath, patch_type: Any, patch: Any, options: Any = None
    ) -> Object:
        raise NotImplementedError

    async def apply(self, place: ResourcePath, kube_object: Object, options: Any = None) -> Object:
        raise NotImplementedError

    async def delete(self, place: ResourcePath, options: DeleteOptions) -> Object:
        self.asked += 1
        if self.fails_with is not None:
            raise self.fails_with
        if place.name in self.refuses:
            raise Forbidden("not you")
        return self.held.pop(place)


async def make(journal: Journal, shelf: Shelf, name: str, *, is_shared: bool = False) -> None:
    body = manifests.namespace(name)
    await journal.ensure(
        "the member", shelf, manifests.namespace_path(name), body, is_shared=is_shared
    )


async def test_what_was_there_before_stays() -> None:
    shelf, journal = Shelf(), Journal("west")
    await make(Journal("east"), shelf, "old")
    await make(journal, shelf, "old")
    await make(journal, shelf, "new")

    assert await journal.take_back() == []

    assert [place.name for place in shelf.held] == ["old"]


async def test_what_cannot_be_removed_is_told() -> None:
    shelf, journal = Shelf(), Journal("west")
    await make(journal, shelf, "one")
    await make(journal, shelf, "two")
    shelf.refuses = {"one"}

    assert await journal.take_back() == ["namespaces one on the member (not you)"]
    assert [place.name for place in shelf.held] == ["one"]


async def test_a_dead_cluster_is_asked_only_once() -> None:
    shelf, journal = Shelf(), Journal("west")
    for name in ("one", "two", "three"):
        await make(journal, shelf, name)
    shelf.fails_with = ClusterUnreachable("west", "no connection in time", was_sent=False)

    left = await journal.take_back()

    assert len(left) == 3
    assert shelf.asked == 1


async def test_what_another_membership_uses_is_not_taken_back() -> None:
    shelf, journal = Shelf(), Journal("west")
    await make(journal, shelf, "karmada-cluster", is_shared=True)
    other = {"metadata": {"name": "karmada-east", "uid": "1"}}
    shelf.held[manifests.account_path("karmada-east")] = other

    assert await journal.take_back() == []

    assert manifests.namespace_path("karmada-cluster") in shelf.held


def test_an_object_is_ours_only_with_our_mark() -> None:
    ours, unmarked = manifests.full_role("a", "hub-1"), manifests.namespace("a")

    assert is_of_hub(ours, "hub-1")
    assert not is_of_hub(ours, "hub-2")
    assert not is_of_hub(unmarked, "hub-1")
    assert foreign_hub(ours, "hub-2") == "hub-1"
    assert foreign_hub(unmarked, "hub-2") == ""
