"""What the hub does on its own account: namespaces end, owners' children go, events expire."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.component.hub_wire import MERGE_PATCH, SECRETS, HubClient, hub_here, secret

from clusterspace.apiserver import forms, housekeeping
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.housekeeping import (
    GRACE_SECONDS,
    GarbageCollector,
    NamespaceController,
    forget_old_events,
)
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.writing import create_own, remove
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.kube.times import format_time
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.steps import stop, until


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HubClient]:
    """A hub whose housekeeping does not wait for bursts to settle."""
    monkeypatch.setattr(housekeeping, "SETTLE_SECONDS", 0.02)
    for each in ("NAMESPACE_RETRY_SECONDS", "RELIST_SECONDS"):
        monkeypatch.setattr(housekeeping, each, 0.05)
    monkeypatch.setattr(NamespaceController, "grace_seconds", 0.05)
    async with hub_here(tmp_path) as client:
        yield client


async def create(hub: HubClient, name: str, *owners: Object, **members: Any) -> Object:
    if owners:
        members["ownerReferences"] = list(owners)
    return await hub.do("POST", SECRETS, secret(name, **members))


def owner_of(kube_object: Object, **members: Any) -> Object:
    metadata = kube_object["metadata"]
    return {
        "apiVersion": kube_object["apiVersion"],
        "kind": kube_object["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **members,
    }


async def delete(hub: HubClient, name: str, propagation: str = "Background") -> None:
    await hub.do("DELETE", f"{SECRETS}/{name}", {"propagationPolicy": propagation})


async def release(hub: HubClient, path: str) -> None:
    """Take every finalizer away."""
    change = {"metadata": {"finalizers": None}}
    await hub.do("PATCH", path, change, content_type=MERGE_PATCH)


async def names(hub: HubClient) -> set[str]:
    found = await hub.do("GET", SECRETS)
    return {each["metadata"]["name"] for each in found["items"]}


async def wait_for_names(hub: HubClient, expected: set[str]) -> None:
    async def are_they() -> bool:
        return await names(hub) == expected

    await until(are_they)


async def until_collected(hub: HubClient) -> None:
    """Wait until the collector has looked at everything that was written before, and once more.

    It looks at keys in their order: who comes last and is gone comes after all the others. What
    came of the first look is looked at in the second.
    """
    nobody = {"apiVersion": "v1", "kind": "Secret", "name": "nobody", "uid": "of-nobody"}
    for _ in range(2):
        await create(hub, "zz-last", nobody)

        async def is_gone() -> bool:
            return "zz-last" not in await names(hub)

        await until(is_gone)


async def stay_as_they_are(hub: HubClient, expected: set[str]) -> None:
    """Let the collector do the wrong thing."""
    await until_collected(hub)
    assert await names(hub) == expected


# -- owners and dependents -----------------------------------------------------------------------


async def test_what_is_owned_goes_after_its_owner_and_so_does_what_that_owns(
    hub: HubClient,
) -> None:
    owner = await create(hub, "owner")
    child = await create(hub, "child", owner_of(owner))
    await create(hub, "grandchild", owner_of(child))
    await create(hub, "stranger")

    await delete(hub, "owner")

    await wait_for_names(hub, {"stranger"})


async def test_in_the_foreground_the_owner_waits_for_those_that_block_it(hub: HubClient) -> None:
    owner = await create(hub, "owner")
    blocking = owner_of(owner, blockOwnerDeletion=True)
    await create(hub, "held", blocking, finalizers=["example.com/hold"])
    await create(hub, "free", blocking)

    await delete(hub, "owner", "Foreground")

    await wait_for_names(hub, {"owner", "held"})
    waiting = await hub.do("GET", f"{SECRETS}/owner")
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    await release(hub, f"{SECRETS}/held")
    await wait_for_names(hub, set())


async def test_in_the_foreground_the_owner_does_not_wait_for_those_that_do_not_block(
    hub: HubClient,
) -> None:
    owner = await create(hub, "owner")
    await create(hub, "held", owner_of(owner), finalizers=["example.com/hold"])

    await delete(hub, "owner", "Foreground")

    await wait_for_names(hub, {"held"})
    held = await hub.do("GET", f"{SECRETS}/held")
    assert "deletionTimestamp" in held["metadata"]


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_a_circle_of_owners_goes_when_one_of_them_is_deleted_in_the_foreground(
    hub: HubClient, size: int
) -> None:
    circle = [await create(hub, f"link-{index}") for index in range(size)]
    for index, link in enumerate(circle):
        owner = owner_of(circle[index - 1], blockOwnerDeletion=True)
        change = {"metadata": {"ownerReferences": [owner]}}
        path = f"{SECRETS}/{link['metadata']['name']}"
        await hub.do("PATCH", path, change, content_type=MERGE_PATCH)

    await delete(hub, "link-0", "Foreground")

    await wait_for_names(hub, set())


async def test_a_dependent_that_has_another_owner_stays_and_holds_up_nobody(
    hub: HubClient,
) -> None:
    leaving, staying = await create(hub, "leaving"), await create(hub, "staying")
    owners = (owner_of(each, blockOwnerDeletion=True) for each in (leaving, staying))
    await create(hub, "child", *owners)

    await delete(hub, "leaving", "Foreground")

    await wait_for_names(hub, {"staying", "child"})
    child = await hub.do("GET", f"{SECRETS}/child")
    assert [each["name"] for each in child["metadata"]["ownerReferences"]] == ["staying"]


async def test_orphans_stay_and_forget_their_owner(hub: HubClient) -> None:
    owner = await create(hub, "owner")
    await create(hub, "child", owner_of(owner))

    await delete(hub, "owner", "Orphan")

    await wait_for_names(hub, {"child"})
    child = await hub.do("GET", f"{SECRETS}/child")
    assert "ownerReferences" not in child["metadata"]
    await stay_as_they_are(hub, {"child"})


async def test_one_owner_that_is_there_is_enough_and_the_hanging_reference_goes(
    hub: HubClient,
) -> None:
    first, second = await create(hub, "first"), await create(hub, "second")
    await create(hub, "child", owner_of(first), owner_of(second))

    await delete(hub, "first")

    async def is_dropped() -> bool:
        child = await hub.do("GET", f"{SECRETS}/child")
        return child["metadata"]["ownerReferences"] == [owner_of(second)]

    await until(is_dropped)
    await stay_as_they_are(hub, {"child", "second"})


async def test_an_owner_of_the_same_name_and_another_uid_is_not_the_owner(hub: HubClient) -> None:
    await create(hub, "owner")
    ghost = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "of-an-earlier-one"}
    await create(hub, "child", ghost)

    await wait_for_names(hub, {"owner"})


async def test_an_owner_made_again_does_not_save_the_children_of_the_first(hub: HubClient) -> None:
    owner = await create(hub, "owner", finalizers=["example.com/hold"])
    await create(hub, "child", owner_of(owner))
    await delete(hub, "owner")
    await stay_as_they_are(hub, {"owner", "child"})

    await release(hub, f"{SECRETS}/owner")
    await create(hub, "owner")

    await wait_for_names(hub, {"owner"})


@pytest.mark.parametrize(
    "unknown",
    [
        {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"},
        {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "u"},
        {"apiVersion": "unheard.of/v9", "kind": "Secret", "name": "t", "uid": "u"},
    ],
    ids=["group", "kind", "both"],
)
async def test_an_owner_of_a_kind_nobody_serves_keeps_its_dependents(
    hub: HubClient, unknown: Object
) -> None:
    owner = await create(hub, "owner")
    await create(hub, "kept", unknown)
    await create(hub, "kept-too", unknown, owner_of(owner))

    await delete(hub, "owner")

    await wait_for_names(hub, {"kept", "kept-too"})
    await stay_as_they_are(hub, {"kept", "kept-too"})


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/shop.example.com/v1/namespaces/default/widgets"


async def define_widgets(hub: HubClient) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await hub.do("POST", DEFINITIONS, definition)

    async def is_served() -> bool:
        return (await hub.ask("GET", WIDGETS)).status == 200

    await until(is_served)


async def create_widget(hub: HubClient, name: str) -> Object:
    widget = {"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": {"name": name}}
    return await hub.do("POST", WIDGETS, widget)


async def undefine_widgets(hub: HubClient) -> None:
    """Delete the definition with all its objects, and wait until the hub knows no such kind."""
    await hub.do("DELETE", f"{DEFINITIONS}/widgets.shop.example.com")

    async def is_unknown() -> bool:
        return (await hub.ask("GET", WIDGETS)).status == 404

    await until(is_unknown)


async def test_what_is_owned_goes_when_its_owner_goes_together_with_its_kind(
    hub: HubClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough that the collector looks when the kind is not served any more.
    monkeypatch.setattr(housekeeping, "SETTLE_SECONDS", 0.4)
    await define_widgets(hub)
    owner, deleted_before = await create_widget(hub, "owner"), await create_widget(hub, "before")
    child = await create(hub, "child", owner_of(owner))
    await create(hub, "grandchild", owner_of(child))
    await create(hub, "changed-meanwhile", owner_of(deleted_before))

    await hub.do("DELETE", f"{WIDGETS}/before")
    change = {"metadata": {"labels": {"changed": "meanwhile"}}}
    await hub.do("PATCH", f"{SECRETS}/changed-meanwhile", change, content_type=MERGE_PATCH)
    await undefine_widgets(hub)

    await wait_for_names(hub, set())


async def test_only_an_owner_that_was_seen_to_go_is_gone_with_its_kind(
    hub: HubClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SETTLE_SECONDS", 0.4)
    await define_widgets(hub)
    owner = await create_widget(hub, "owner")
    await create(hub, "child", owner_of(owner))
    await create(hub, "of-another-kind", owner_of(owner, kind="Gadget"))
    await create(hub, "of-another-group", owner_of(owner, apiVersion="example.com/v1"))
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
    metadata = {"name": "of-all", "ownerReferences": [owner_of(owner)]}
    await hub.do("POST", path, {**role, "metadata": metadata})

    await undefine_widgets(hub)

    left = {"of-another-kind", "of-another-group"}
    await wait_for_names(hub, left)
    await stay_as_they_are(hub, left)
    assert (await hub.ask("GET", f"{path}/of-all")).status == 200


async def test_an_owner_in_another_namespace_is_no_owner(hub: HubClient) -> None:
    """A namespaced owner is looked for beside its dependent, and nowhere else."""
    path = "/api/v1/namespaces/kube-system/secrets"
    elsewhere = await hub.do("POST", path, secret("owner"))
    await create(hub, "child", owner_of(elsewhere))

    await wait_for_names(hub, set())
    assert (await hub.do("GET", f"{path}/owner"))["metadata"]["name"] == "owner"


async def test_a_cluster_wide_owner_owns_in_every_namespace(hub: HubClient) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    owner = await hub.do("POST", path, {**role, "metadata": {"name": "owner"}, "rules": []})
    await create(hub, "child", owner_of(owner))
    await stay_as_they_are(hub, {"child"})

    await hub.do("DELETE", f"{path}/owner")

    await wait_for_names(hub, set())


async def test_a_pod_on_a_node_gets_its_time_to_stop_before_it_is_collected(
    hub: HubClient,
) -> None:
    owner = await create(hub, "owner")
    pods = "/api/v1/namespaces/default/pods"
    metadata = {"name": "p", "ownerReferences": [owner_of(owner)]}
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    await hub.do(
        "POST", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )

    await delete(hub, "owner")
    await until_collected(hub)

    pod = await hub.do("GET", f"{pods}/p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30


# -- namespaces ----------------------------------------------------------------------------------


async def test_a_namespace_takes_its_content_with_it(hub: HubClient) -> None:
    await new_namespace(hub, "team")
    await hub.do("POST", "/api/v1/namespaces/team/secrets", secret("inside"))
    await create(hub, "outside")

    await hub.do("DELETE", "/api/v1/namespaces/team")

    await wait_for_end(hub, "team")
    assert (await hub.ask("GET", "/api/v1/namespaces/team/secrets/inside")).status == 404
    assert await names(hub) == {"outside"}


async def test_content_with_a_finalizer_holds_its_namespace(hub: HubClient) -> None:
    await new_namespace(hub, "team")
    path = "/api/v1/namespaces/team/secrets"
    await hub.do("POST", path, secret("held", finalizers=["example.com/hold"]))

    await hub.do("DELETE", "/api/v1/namespaces/team")
    # All that are to end are looked at in turn: whoever went last came after the others.
    await new_namespace(hub, "team-after")
    await hub.do("DELETE", "/api/v1/namespaces/team-after")
    await wait_for_end(hub, "team-after")

    space = await hub.do("GET", "/api/v1/namespaces/team")
    assert space["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in (await hub.do("GET", f"{path}/held"))["metadata"]
    assert await hub.refused("POST", path, secret("late")) == 403
    await release(hub, f"{path}/held")
    await wait_for_end(hub, "team")


async def test_what_pods_use_stays_until_the_pods_are_gone(hub: HubClient) -> None:
    await new_namespace(hub, "team")
    pods, secrets = (f"/api/v1/namespaces/team/{each}" for each in ("pods", "secrets"))
    spec = {"containers": [{"name": "c", "image": "web:1"}]}
    metadata = {"name": "p", "finalizers": ["example.com/hold"]}
    await hub.do("POST", pods, {"metadata": metadata, "spec": spec})
    await hub.do("POST", secrets, secret("used"))

    await hub.do("DELETE", "/api/v1/namespaces/team")
    await new_namespace(hub, "team-after")
    await hub.do("DELETE", "/api/v1/namespaces/team-after")
    await wait_for_end(hub, "team-after")

    assert "deletionTimestamp" not in (await hub.do("GET", f"{secrets}/used"))["metadata"]
    space = await hub.do("GET", "/api/v1/namespaces/team")
    waits = {each["type"]: each["message"] for each in space["status"]["conditions"]}
    assert waits["NamespaceContentRemaining"] == (
        "Some resources are remaining: pods. has 1 resource instances"
    )
    await release(hub, f"{pods}/p")
    await wait_for_end(hub, "team")


async def test_a_namespace_whose_name_begins_like_another_keeps_its_content(
    hub: HubClient,
) -> None:
    for name in ("team", "team-a"):
        await new_namespace(hub, name)
        await hub.do("POST", f"/api/v1/namespaces/{name}/secrets", secret("inside"))

    await hub.do("DELETE", "/api/v1/namespaces/team")

    await wait_for_end(hub, "team")
    await hub.do("GET", "/api/v1/namespaces/team-a/secrets/inside")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_namespaces_every_cluster_has_cannot_be_deleted(
    hub: HubClient, name: str
) -> None:
    assert await hub.refused("DELETE", f"/api/v1/namespaces/{name}") == 403


async def test_a_deleted_namespace_is_terminating_for_as_long_as_in_kubernetes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each from its own deletion on: one that was deleted before it does not hurry another."""
    monkeypatch.setattr(NamespaceController, "grace_seconds", GRACE_SECONDS)
    assert GRACE_SECONDS == 5.0
    clock = ManualClock()
    hub = state_on(MemoryStore(), clock)
    served = hub.catalog.get_storage("", "namespaces")
    running = asyncio.create_task(NamespaceController(hub).run())

    async def delete_new(name: str) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await create_own(hub, served, space, "test")
        await remove(hub, served, served.key("", name), DeleteOptions(), None)
        await clock.advance(0)

    async def names() -> list[str]:
        page = await hub.store.range(served.prefix())
        return [each.key.rpartition("/")[2] for each in page.items]

    try:
        await delete_new("first")
        for _ in range(6):
            await clock.advance(0.5)
        await delete_new("second")
        for _ in range(3):
            await clock.advance(0.5)
        assert await names() == ["first", "second"]
        await clock.advance(0.5)
        assert await names() == ["second"]
        for _ in range(5):
            await clock.advance(0.5)
        assert await names() == ["second"]
        for _ in range(2):
            await clock.advance(0.5)
        assert await names() == []
    finally:
        await stop(running)


async def new_namespace(hub: HubClient, name: str) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await hub.do("POST", "/api/v1/namespaces", space)


async def wait_for_end(hub: HubClient, name: str) -> None:
    async def is_gone() -> bool:
        return (await hub.ask("GET", f"/api/v1/namespaces/{name}")).status == 404

    await until(is_gone)


# -- when the truth cannot be read ---------------------------------------------------------------


class BlindStore(MemoryStore):
    """A store that cannot read some keys just now."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable = ""

    async def get(self, key: str, *, at: Any = None) -> Any:
        if self.unreadable and key.endswith(self.unreadable):
            raise OSError("the disk does not answer")
        return await super().get(key, at=at)


def state_on(store: MemoryStore, clock: ManualClock) -> HubState:
    numbers = iter(range(10_000))
    return HubState(
        store=store,
        catalog=Catalog(builtin_resources()),
        feeds=Feeds(store),
        clock=clock,
        random=Random(1),
        new_uid=lambda: f"uid-{next(numbers)}",
    )


async def test_nothing_is_deleted_while_the_owner_cannot_be_read() -> None:
    store = BlindStore()
    hub = state_on(store, ManualClock())
    maps = hub.catalog.get_storage("", "secrets")
    await create_own(hub, maps, secret("owner", namespace="default"), "test")
    ghost = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "another"}
    child = secret("child", namespace="default", ownerReferences=[ghost])
    await create_own(hub, maps, child, "test")
    collector, key = GarbageCollector(hub), maps.key("default", "child")
    store.unreadable = "/owner"

    with pytest.raises(OSError, match="does not answer"):
        await collector.collect(key)

    assert await store.get(key) is not None
    store.unreadable = ""
    await collector.collect(key)
    assert await store.get(key) is None


async def test_an_owner_is_not_let_go_before_its_dependents_are_known() -> None:
    """The mark can be read before the watch has brought what was written ahead of it."""
    store = MemoryStore()
    hub = state_on(store, ManualClock())
    secrets = hub.catalog.get_storage("", "secrets")
    owner = await create_own(hub, secrets, secret("owner", namespace="default"), "test")
    reference = owner_of(forms.decode_stored(owner, secrets.form))
    child = secret("child", namespace="default", ownerReferences=[reference])
    await create_own(hub, secrets, child, "test")
    key = secrets.key("default", "owner")
    await remove(hub, secrets, key, DeleteOptions(propagation="Orphan"), None)

    await GarbageCollector(hub).collect(key)

    assert await store.get(key) is not None


# -- events --------------------------------------------------------------------------------------


async def write_event(hub: HubState, name: str, seconds_ago: float, **members: Any) -> None:
    happened = format_time(hub.clock.now() - seconds_ago)
    event: Object = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Seen",
        "type": "Normal",
        **(members or {"lastTimestamp": happened, "firstTimestamp": happened}),
    }
    await create_own(hub, hub.catalog.get_storage("", "events"), event, "test")


async def events_in(hub: HubState) -> set[str]:
    page = await hub.store.range(hub.catalog.get_storage("", "events").prefix())
    return {item.key.rpartition("/")[2] for item in page.items}


async def test_events_are_forgotten_an_hour_after_they_last_happened() -> None:
    clock = ManualClock()
    hub = state_on(MemoryStore(), clock)
    await write_event(hub, "old", 0)
    await clock.advance(1800)
    await write_event(hub, "newer", 0)

    await clock.advance(1700)
    assert await forget_old_events(hub, 3600) == 0
    await clock.advance(200)

    assert await forget_old_events(hub, 3600) == 1
    assert await events_in(hub) == {"newer"}


async def test_an_event_that_happens_again_starts_its_hour_again() -> None:
    clock = ManualClock()
    hub = state_on(MemoryStore(), clock)
    first = format_time(clock.now())
    await clock.advance(7200)
    last = format_time(clock.now() - 60)
    await write_event(hub, "again", 0, firstTimestamp=first, lastTimestamp=last)
    series = {"count": 5, "lastObservedTime": f"{last[:-1]}.000000Z"}
    await write_event(hub, "series", 0, firstTimestamp=first, series=series)

    assert await forget_old_events(hub, 3600) == 0
    await clock.advance(3601)
    assert await forget_old_events(hub, 3600) == 2


# -- volumes, and what uses them -------------------------------------------------------------------


CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
PODS = "/api/v1/namespaces/default/pods"


def claim(name: str, **spec: Any) -> Object:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {**asked, **spec},
    }


def volume(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp"},
        },
    }


def attributes_class(name: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": {"name": name},
        "driverName": "example.com",
        "parameters": {"iops": "100"},
    }


async def until_gone(hub: HubClient, path: str) -> None:
    async def is_gone() -> bool:
        return (await hub.ask("GET", path)).status == 404

    await until(is_gone)


@pytest.mark.parametrize(
    ("collection", "manifest"),
    [
        (CLAIMS, claim("unused")),
        (VOLUMES, volume("unused")),
        (CLASSES, attributes_class("unused")),
    ],
    ids=["claim", "volume", "attributes class"],
)
async def test_storage_that_nobody_uses_can_be_deleted(
    hub: HubClient, collection: str, manifest: Object
) -> None:
    made = await hub.do("POST", collection, manifest)
    assert "protection" in made["metadata"]["finalizers"][0]

    await hub.do("DELETE", f"{collection}/unused")

    await until_gone(hub, f"{collection}/unused")


async def test_a_namespace_with_a_claim_ends(hub: HubClient) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "stored"}}
    await hub.do("POST", "/api/v1/namespaces", space)
    await hub.do("POST", CLAIMS.replace("default", "stored"), claim("data"))

    await hub.do("DELETE", "/api/v1/namespaces/stored")

    await until_gone(hub, "/api/v1/namespaces/stored")


async def test_a_claim_stays_for_as_long_as_a_pod_on_a_node_uses_it(hub: HubClient) -> None:
    await hub.do("POST", CLAIMS, claim("data"))
    await hub.do("POST", CLAIMS, claim("after-it"))
    used = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user"},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "i"}],
            "volumes": [used],
        },
    }
    await hub.do("POST", PODS, pod)

    await hub.do("DELETE", f"{CLAIMS}/data")
    await hub.do("DELETE", f"{CLAIMS}/after-it")
    await until_gone(hub, f"{CLAIMS}/after-it")

    held = await hub.do("GET", f"{CLAIMS}/data")
    assert held["metadata"]["deletionTimestamp"]
    await hub.do("DELETE", f"{PODS}/user", {"gracePeriodSeconds": 0})
    await until_gone(hub, f"{CLAIMS}/data")


async def test_a_volume_that_is_bound_on_members_alone_can_be_deleted(hub: HubClient) -> None:
    """The status of a template says how its copies are; a copy's own says how it is itself."""
    carried = {"clusterpropagationpolicy.karmada.io/permanent-id": "some-policy"}
    placed = {**carried, "karmada.io/managed": "true"}
    for name, labels in (("template", carried), ("placed", placed), ("zz-last", {})):
        labelled = with_metadata(volume(name), labels=labels)
        await hub.do("POST", VOLUMES, labelled)
    bound = {"status": {"phase": "Bound"}}
    for name in ("template", "placed"):
        await hub.do("PATCH", f"{VOLUMES}/{name}/status", bound, content_type=MERGE_PATCH)

    for name in ("placed", "template", "zz-last"):
        await hub.do("DELETE", f"{VOLUMES}/{name}")

    await until_gone(hub, f"{VOLUMES}/template")
    await until_gone(hub, f"{VOLUMES}/zz-last")
    assert (await hub.do("GET", f"{VOLUMES}/placed"))["metadata"]["deletionTimestamp"]


async def test_a_bound_volume_and_a_class_of_a_claim_stay(hub: HubClient) -> None:
    await hub.do("POST", VOLUMES, volume("bound"))
    bound = {"status": {"phase": "Bound"}}
    await hub.do("PATCH", f"{VOLUMES}/bound/status", bound, content_type=MERGE_PATCH)
    await hub.do("POST", CLASSES, attributes_class("fast"))
    await hub.do("POST", CLAIMS, claim("data", volumeAttributesClassName="fast"))
    await hub.do("POST", VOLUMES, volume("zz-last"))

    for path in (f"{VOLUMES}/bound", f"{CLASSES}/fast", f"{VOLUMES}/zz-last"):
        await hub.do("DELETE", path)
    await until_gone(hub, f"{VOLUMES}/zz-last")

    for path in (f"{VOLUMES}/bound", f"{CLASSES}/fast"):
        assert (await hub.do("GET", path))["metadata"]["deletionTimestamp"]
    released = {"status": {"phase": "Released"}}
    await hub.do("PATCH", f"{VOLUMES}/bound/status", released, content_type=MERGE_PATCH)
    await hub.do("DELETE", f"{CLAIMS}/data")
    await until_gone(hub, f"{VOLUMES}/bound")
    await until_gone(hub, f"{CLASSES}/fast")
