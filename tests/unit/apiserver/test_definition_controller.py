import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from clusterspace.apis.crds import definitions
from clusterspace.apiserver import forms
from clusterspace.apiserver.builtin_resources import DefinitionRules, builtin_resources
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.writing import create_own, edit_own, remove
from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.objects import find_at, metadata_of, name_of, with_metadata
from clusterspace.testing.clocks import ManualClock

NAME = "things.probe.io"


def _hub(store: MemoryStore, clock: ManualClock) -> HubState:
    uids = iter(range(10**6))
    return HubState(
        store=store,
        catalog=Catalog(_with_definition_rules(each) for each in builtin_resources()),
        feeds=Feeds(store),
        clock=clock,
        random=Random(1),
        new_uid=lambda: f"uid-{next(uids)}",
    )


def _with_definition_rules(served: Served) -> Served:
    if served.info.kind != "CustomResourceDefinition":
        return served
    return replace(served, rules=DefinitionRules(served.info.group_version_kind))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def hub(clock: ManualClock) -> AsyncGenerator[HubState]:
    store = MemoryStore()
    yield _hub(store, clock)
    await store.close()


@asynccontextmanager
async def running(controller: CustomResourceController, clock: ManualClock) -> AsyncGenerator[None]:
    task = asyncio.create_task(controller.run())
    await clock.advance(0)
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def _definition(kind: str = "Thing", plural: str = "things", **version: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 1}}}
        },
    }
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.probe.io"},
        "spec": {
            "group": "probe.io",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [{**served, **version}],
        },
    }


def _crds(hub: HubState) -> Served:
    return hub.catalog.get_storage("apiextensions.k8s.io", "customresourcedefinitions")


async def _stored(hub: HubState, name: str = NAME) -> dict[str, Any] | None:
    served = _crds(hub)
    entry = await hub.store.get(served.key("", name))
    return None if entry is None else forms.decode_stored(entry, served.form)


async def _get(hub: HubState, name: str = NAME) -> dict[str, Any]:
    found = await _stored(hub, name)
    assert found is not None
    return found


async def _create_thing(hub: HubState, name: str, **metadata: Any) -> str:
    served = hub.catalog.get_storage("probe.io", "things")
    wanted = {"apiVersion": "probe.io/v1", "kind": "Thing", "spec": {}}
    entry = await create_own(hub, served, {**wanted, "metadata": {"name": name, **metadata}}, "me")
    return entry.key


async def test_a_definition_is_served_as_soon_as_it_is_created(hub, clock):
    async with running(CustomResourceController(hub), clock):
        assert hub.catalog.find("probe.io", "v1", "things") is None
        await create_own(hub, _crds(hub), _definition(), "me")
        await clock.advance(0)
        assert hub.catalog.find("probe.io", "v1", "things") is not None
        held = await _get(hub)
        assert is_true(held["status"]["conditions"], "Established")
        owners = {each["manager"]: each for each in metadata_of(held)["managedFields"]}
        assert owners["kube-apiserver"]["subresource"] == "status"
        assert held["metadata"]["generation"] == 1


async def test_definitions_are_served_again_after_a_restart_before_anybody_asks(hub, clock):
    await create_own(hub, _crds(hub), _definition(), "me")
    await CustomResourceController(hub).load()
    restarted = _hub(hub.store, clock)
    await CustomResourceController(restarted).load()
    served = restarted.catalog.find("probe.io", "v1", "things")
    assert served is not None
    assert served.rules.default({"metadata": {}, "spec": {}})["spec"] == {"size": 1}


async def test_a_definition_that_does_not_change_is_written_once(hub, clock):
    async with running(CustomResourceController(hub), clock):
        await create_own(hub, _crds(hub), _definition(), "me")
        await clock.advance(5)
        revision = hub.store.current_revision
        await clock.advance(60)
        assert hub.store.current_revision == revision


async def test_names_go_to_who_came_first(hub, clock):
    async with running(CustomResourceController(hub), clock):
        await create_own(hub, _crds(hub), _definition(), "me")
        await create_own(hub, _crds(hub), _definition(plural="others"), "me")
        await clock.advance(0)
        assert hub.catalog.find("probe.io", "v1", "things") is not None
        assert hub.catalog.find("probe.io", "v1", "others") is None
        await _end(hub)
        await clock.advance(5)
        assert hub.catalog.find("probe.io", "v1", "others") is not None


async def _end(hub: HubState, name: str = NAME) -> None:
    removed = await remove(hub, _crds(hub), _crds(hub).key("", name), DeleteOptions(), None)
    assert not removed.is_gone


async def test_a_deleted_definition_takes_its_objects_and_routes_with_it(hub, clock):
    async with running(CustomResourceController(hub), clock):
        await create_own(hub, _crds(hub), _definition(), "me")
        await clock.advance(0)
        key = await _create_thing(hub, "a")
        await _end(hub)
        await clock.advance(2)
        assert await hub.store.get(key) is None
        assert await _stored(hub) is None
        assert hub.catalog.find("probe.io", "v1", "things") is None


async def test_objects_that_something_holds_hold_their_definition(hub, clock):
    async with running(CustomResourceController(hub), clock):
        await create_own(hub, _crds(hub), _definition(), "me")
        await clock.advance(0)
        key = await _create_thing(hub, "a", finalizers=["probe.io/hold"])
        served = hub.catalog.get_storage("probe.io", "things")
        await _end(hub)
        await clock.advance(10)
        held = await _get(hub)
        ending = find_condition(held["status"]["conditions"], "Terminating")
        assert ending is not None
        assert ending["reason"] == "InstanceDeletionInProgress"
        assert hub.catalog.find("probe.io", "v1", "things") is not None
        await edit_own(hub, served, key, lambda old: with_metadata(old, finalizers=None))
        await clock.advance(2)
        assert await _stored(hub) is None


async def test_an_interrupted_deletion_is_finished_after_a_restart(hub, clock):
    await create_own(hub, _crds(hub), _definition(), "me")
    await CustomResourceController(hub).load()
    key = await _create_thing(hub, "a")
    await _end(hub)
    restarted = _hub(hub.store, clock)
    controller = CustomResourceController(restarted)
    await controller.load()
    assert await restarted.store.get(key) is not None
    async with running(controller, clock):
        await clock.advance(2)
        assert await _stored(restarted) is None
        assert await restarted.store.get(key) is None


async def test_versions_are_read_without_what_they_do_not_know(hub, clock):
    del clock
    old = {"type": "object", "properties": {"spec": {"type": "object"}}}
    definition = _definition()
    second = {"name": "v2", "served": True, "storage": False, "schema": {"openAPIV3Schema": old}}
    definition["spec"]["versions"].append(second)
    await create_own(hub, _crds(hub), definition, "me")
    await CustomResourceController(hub).load()
    key = await _create_thing(hub, "a")
    entry = await hub.store.get(key)
    assert entry is not None
    first = hub.catalog.find("probe.io", "v1", "things")
    other = hub.catalog.find("probe.io", "v2", "things")
    assert first is not None
    assert other is not None
    assert forms.decode_stored(entry, first.form)["spec"] == {"size": 1}
    shown = forms.decode_stored(entry, other.form)
    assert (shown["apiVersion"], shown["spec"]) == ("probe.io/v2", {})


@pytest.mark.parametrize("definition", definitions(), ids=name_of)
def test_our_own_kinds_are_written_in_normal_form(hub, definition):
    reading = _crds(hub).rules.read(definition)

    assert reading.unknown_fields == ()
    assert {**reading.kube_object, "status": None} == {**definition, "status": None}


async def test_our_own_kinds_are_installed_and_brought_up_to_date(hub, clock):
    del clock
    controller = CustomResourceController(hub)
    await controller.install(definitions())
    await controller.load()
    assert hub.catalog.find("cluster.karmada.io", "v1alpha1", "clusters") is not None
    assert len({served.storage for served in hub.catalog.all() if served.is_custom}) == len(
        definitions()
    )
    revision = hub.store.current_revision
    await controller.install(definitions())
    assert hub.store.current_revision == revision
    changed = _definition()
    await controller.install([changed])
    await controller.install([_definition(deprecated=True)])
    held = await _get(hub)
    assert find_at(held, "spec", "versions")[0]["deprecated"] is True
    assert held["metadata"]["generation"] == 2
    assert {each["manager"] for each in metadata_of(held)["managedFields"]} == {"clusterspace"}
