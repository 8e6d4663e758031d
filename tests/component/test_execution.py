"""Works become objects on a member, and what they are like goes back."""

import time
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from tests.component.execution_site import (
    SPACE,
    Site,
    executing,
    new_name,
    two_clusters,
    work_of,
)

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import DeleteOptions, PatchType, WriteOptions
from clusterspace.controllers.commit import commit
from clusterspace.errors import NotServed
from clusterspace.fleet.execution.controller import MemberExecution
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    resource_version_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    deployment,
    namespace,
)
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Site, MemberExecution]]:
    async with (
        two_clusters(tmp_path_factory.mktemp("site")) as site,
        executing(site) as execution,
    ):
        yield site, execution


@pytest.fixture
def site(running: tuple[Site, MemberExecution]) -> Site:
    return running[0]


def map_place(name: str) -> ResourcePath:
    return ResourcePath(CONFIG_MAPS, "default", name)


async def test_a_work_becomes_an_object_and_says_so(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name, {"a": "1"})))

    condition = await site.applied(name_of(work))

    live = await site.member.get(map_place(name))
    assert live["data"] == {"a": "1"}
    assert labels_of(live)[stamps.MANAGED] == "true"
    assert condition["reason"] == "AppliedSuccessful"
    assert condition["message"] == "Manifest has been successfully applied"
    status = (await site.work(name_of(work)))["status"]
    assert [each["type"] for each in status["conditions"]] == ["Dispatching", "Applied"]
    assert status["manifestStatuses"] == [
        {
            "health": "Healthy",
            "identifier": {
                "kind": "ConfigMap",
                "name": name,
                "namespace": "default",
                "ordinal": 0,
                "resource": "",
                "version": "v1",
            },
        }
    ]


async def test_a_change_of_the_order_changes_the_object_and_a_dropped_key_goes(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name, {"a": "1", "b": "2"})))
    await site.applied(name_of(work))

    await site.change_order(name_of(work), lambda each: {**each, "data": {"a": "3"}})

    async def is_changed() -> bool:
        return (await site.member.get(map_place(name)))["data"] == {"a": "3"}

    await until(is_changed)


async def test_what_others_added_on_the_member_stays(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name, {"a": "1"})))
    await site.applied(name_of(work))
    live = await site.member.get(map_place(name))
    added = with_metadata(live, annotations={**annotations_of(live), "theirs": "x"})
    added = with_value(added, "theirs", "data", "added")
    await site.member.update(map_place(name), added, site.foreign)

    await site.change_order(name_of(work), lambda each: {**each, "data": {"a": "2"}})

    async def is_changed() -> bool:
        return (await site.member.get(map_place(name)))["data"].get("a") == "2"

    await until(is_changed)
    live = await site.member.get(map_place(name))
    assert live["data"] == {"a": "2", "added": "theirs"}
    assert annotations_of(live)["theirs"] == "x"


async def test_an_object_of_somebody_else_is_not_touched_and_the_conflict_is_told(
    site: Site,
) -> None:
    name = new_name()
    theirs = await site.member.create(
        ResourcePath(CONFIG_MAPS, "default"), config_map(name, {"a": "legacy"}), site.foreign
    )

    work = await site.order(work_of(config_map(name, {"a": "1"})))
    condition = await site.applied(name_of(work), "False")

    assert condition["reason"] == "AppliedFailed"
    assert condition["message"].startswith(
        f"Failed to apply all manifests (0/1): resource(kind=ConfigMap, default/{name}) already"
        " exists in the cluster west and the work.karmada.io/conflict-resolution strategy value is"
        " abort"
    )
    assert "no hub manages it" in condition["message"]
    assert "written by kubectl" in condition["message"]
    assert "data.a" in condition["message"]
    live = await site.member.get(map_place(name))
    assert resource_version_of(live) == resource_version_of(theirs)
    assert "manifestStatuses" not in (await site.work(name_of(work)))["status"]
    for about in (name, name_of(work)):
        event = await site.event("SyncFailed", about)
        assert event["type"] == "Warning"


async def test_a_conflict_ends_by_itself_when_the_object_in_the_way_goes(site: Site) -> None:
    name = new_name()
    theirs = await site.member.create(
        ResourcePath(CONFIG_MAPS, "default"), config_map(name, {"a": "legacy"}), site.foreign
    )
    work = await site.order(work_of(config_map(name, {"a": "1"})))
    await site.applied(name_of(work), "False")
    await settled()
    assert await is_failing(site, name_of(work))

    await site.member.delete(map_place(name), DeleteOptions(uid_of(theirs)))

    await site.applied(name_of(work))
    assert (await site.member.get(map_place(name)))["data"] == {"a": "1"}
    await site.event("SyncSucceed", name)


async def is_failing(site: Site, work_name: str) -> bool:
    return (await site.condition(work_name, "Applied")).get("status") == "False"


async def test_a_conflict_ends_when_the_order_says_to_overwrite(site: Site) -> None:
    name = new_name()
    theirs = await site.member.create(
        ResourcePath(CONFIG_MAPS, "default"),
        config_map(name, {"a": "legacy", "b": "2"}),
        site.foreign,
    )
    work = await site.order(work_of(config_map(name, {"a": "1"})))
    await site.applied(name_of(work), "False")

    def overwriting(manifest: Object) -> Object:
        annotations = {**annotations_of(manifest), stamps.CONFLICT_RESOLUTION: "overwrite"}
        return with_metadata(manifest, annotations=annotations)

    await site.change_order(name_of(work), overwriting)
    await site.applied(name_of(work))

    live = await site.member.get(map_place(name))
    assert live["data"] == {"a": "1"}, "what its author had set is overwritten"
    assert uid_of(live) == uid_of(theirs)
    assert labels_of(live)[stamps.MANAGED] == "true"


async def test_an_object_another_hub_manages_is_not_ours(site: Site) -> None:
    name = new_name()
    other = work_of(config_map(name, {"a": "other"}))
    await site.member.create(
        ResourcePath(CONFIG_MAPS, "default"),
        other["spec"]["workload"]["manifests"][0],
        site.foreign,
    )

    work = await site.order(work_of(config_map(name, {"a": "1"})))
    condition = await site.applied(name_of(work), "False")

    assert "of another binding or hub" in condition["message"]
    assert (await site.member.get(map_place(name)))["data"] == {"a": "other"}


async def test_drift_is_put_back_with_an_event_that_names_field_and_culprit(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name, {"a": "1"})))
    await site.applied(name_of(work))
    live = await site.member.get(map_place(name))

    intruder = WriteOptions(field_manager="intruder")
    await site.member.update(map_place(name), with_value(live, "9", "data", "a"), intruder)

    async def is_back() -> bool:
        return (await site.member.get(map_place(name)))["data"]["a"] == "1"

    await until(is_back)
    event = await site.event("DriftRepaired", name_of(work))
    assert "data.a (changed by intruder)" in event["message"]
    await site.event("DriftRepaired", name)


async def test_drift_that_comes_back_is_repaired_ever_more_slowly(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name, {"a": "1"})))
    await site.applied(name_of(work))

    async def spoil() -> None:
        live = await site.member.get(map_place(name))
        await site.member.update(map_place(name), with_value(live, "9", "data", "a"), site.foreign)

    async def is_back() -> bool:
        return (await site.member.get(map_place(name)))["data"]["a"] == "1"

    await spoil()
    await until(is_back)
    await spoil()
    spoilt = time.monotonic()

    await until(is_back)
    assert time.monotonic() - spoilt >= 0.6


async def test_two_owners_who_overwrite_take_an_object_from_each_other_ever_more_slowly(
    site: Site,
) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name, {"a": "1"}), resolution="overwrite"))
    await site.applied(name_of(work))
    place = map_place(name)
    ours = labels_of(await site.member.get(place))[stamps.WORK_ID]

    async def take() -> None:
        live = await site.member.get(place)
        stolen = with_metadata(live, labels={**labels_of(live), stamps.WORK_ID: "another-hub"})
        await site.member.update(place, stolen, site.foreign)

    async def is_ours_again() -> bool:
        return labels_of(await site.member.get(place))[stamps.WORK_ID] == ours

    await take()
    await until(is_ours_again)
    await take()
    taken = time.monotonic()

    await until(is_ours_again)
    assert time.monotonic() - taken >= 0.6


async def test_an_object_deleted_on_the_member_is_made_again(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name, {"a": "1"})))
    await site.applied(name_of(work))
    live = await site.member.get(map_place(name))

    await site.member.delete(map_place(name), DeleteOptions(uid_of(live)))

    async def is_recreated() -> bool:
        return (await site.condition(name_of(work), "Applied"))["reason"] == "ReCreateSuccessful"

    await until(is_recreated)
    again = await site.member.get(map_place(name))
    assert uid_of(again) != uid_of(live)


async def test_a_suspended_work_touches_nothing_and_says_so(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name), suspendDispatching=True))

    async def is_suspended() -> bool:
        condition = await site.condition(name_of(work), "Dispatching")
        return condition.get("reason") == "SuspendDispatching"

    await until(is_suspended)
    assert await site.member.find(map_place(name)) is None
    assert await site.condition(name_of(work), "Applied") == {}


async def test_a_deleted_work_takes_its_object_along(site: Site) -> None:
    name = new_name()
    work = await site.order(work_of(config_map(name)))
    await site.applied(name_of(work))

    await site.delete_work(name_of(work))
    await site.gone(name_of(work))

    assert await site.member.find(map_place(name)) is None


async def test_a_deleted_work_leaves_alone_what_was_never_its_own(site: Site) -> None:
    name = new_name()
    await site.member.create(ResourcePath(CONFIG_MAPS, "default"), config_map(name), site.foreign)
    work = await site.order(work_of(config_map(name, {"a": "1"})))
    await site.applied(name_of(work), "False")

    await site.delete_work(name_of(work))
    await site.gone(name_of(work))

    assert await site.member.find(map_place(name)) is not None


async def test_a_preserved_object_stays_without_a_trace_of_us(site: Site) -> None:
    name = new_name()
    manifest = config_map(name, {"a": "1"}, labels={"mine": "yes"})
    work = await site.order(work_of(manifest, preserveResourcesOnDeletion=True))
    await site.applied(name_of(work))

    await site.delete_work(name_of(work))
    await site.gone(name_of(work))

    live = await site.member.get(map_place(name))
    assert live["data"] == {"a": "1"}
    assert labels_of(live) == {"mine": "yes"}
    assert annotations_of(live) == {}


async def test_a_manifest_that_is_no_longer_listed_is_deleted(site: Site) -> None:
    first, second = new_name(), new_name()
    work = await site.order(work_of(config_map(first), config_map(second)))
    await site.applied(name_of(work))

    before = await site.work(name_of(work))
    manifests = before["spec"]["workload"]["manifests"][:1]
    after = with_value(before, manifests, "spec", "workload", "manifests")
    place = ResourcePath(WORKS, SPACE, name_of(work))
    await commit(site.hub, place, before, after)

    async def is_pruned() -> bool:
        return await site.member.find(map_place(second)) is None

    await until(is_pruned)
    assert await site.member.find(map_place(first)) is not None


async def test_an_object_whose_last_change_was_refused_goes_with_its_manifest(site: Site) -> None:
    kept, dropped = new_name(), new_name()
    work = await site.order(work_of(config_map(kept), config_map(dropped, {"a": "1"})))
    name = name_of(work)
    await site.applied(name)

    async def relist(change: Callable[[list[Object]], list[Object]]) -> None:
        before = await site.work(name)
        manifests = change(list(manifests_of(before)))
        after = with_value(before, manifests, "spec", "workload", "manifests")
        await commit(site.hub, resource_path_of(WORKS, before), before, after)

    await relist(lambda listed: [listed[0], {**listed[1], "data": {"no key!": "2"}}])
    await site.applied(name, "False")
    assert (await site.member.get(map_place(dropped)))["data"] == {"a": "1"}
    await relist(lambda listed: listed[:1])

    async def is_gone() -> bool:
        return await site.member.find(map_place(dropped)) is None

    await until(is_gone)
    assert await site.member.find(map_place(kept)) is not None


async def test_an_object_waits_for_its_namespace_and_comes_with_it(site: Site) -> None:
    name, home = new_name(), new_name()
    work = await site.order(work_of(config_map(name, namespace=home)))
    condition = await site.applied(name_of(work), "False")
    assert f"namespace {home} does not exist" in condition["message"]

    await site.order(work_of(namespace(home), resolution=""))

    await site.applied(name_of(work))
    assert await site.member.find(ResourcePath(CONFIG_MAPS, home, name)) is not None


async def test_a_namespace_that_is_there_already_is_used_and_left_as_it_is(site: Site) -> None:
    home = new_name()
    theirs = await site.member.create(ResourcePath(NAMESPACES), namespace(home), site.foreign)

    work = await site.order(work_of(namespace(home), resolution=""))
    await site.applied(name_of(work))

    live = await site.member.get(ResourcePath(NAMESPACES, name=home))
    assert resource_version_of(live) == resource_version_of(theirs)
    await site.delete_work(name_of(work))
    await site.gone(name_of(work))
    assert await site.member.find(ResourcePath(NAMESPACES, name=home)) is not None


async def test_what_the_member_refuses_is_told_in_its_own_words(site: Site) -> None:
    wrong = deployment(new_name())
    wrong = with_value(wrong, {"matchLabels": {"app": "another"}}, "spec", "selector")

    work = await site.order(work_of(wrong))
    condition = await site.applied(name_of(work), "False")

    assert "was refused" in condition["message"]
    assert "selector" in condition["message"]


async def test_a_kind_the_member_does_not_know_is_told(site: Site) -> None:
    gadget: Object = {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": new_name(), "namespace": "default"},
        "spec": {"size": 1},
    }

    work = await site.order(work_of(gadget))
    condition = await site.applied(name_of(work), "False")

    assert "does not serve example.com/v1, Kind=Gadget" in condition["message"]


DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
WIDGETS = GroupVersionResource("example.com", "v1", "widgets")


async def define_widgets(site: Site) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await site.member.create(ResourcePath(DEFINITIONS), definition)


async def undefine_widgets(site: Site) -> None:
    path = ResourcePath(DEFINITIONS, name="widgets.example.com")
    await site.member.delete(path, DeleteOptions(uid_of(await site.member.get(path))))

    async def is_unknown() -> bool:
        try:
            await site.member.find(ResourcePath(WIDGETS, "default", "any"))
        except NotServed:
            return True
        return False

    await until(is_unknown)


@pytest.mark.parametrize("ending", [{}, {"preserveResourcesOnDeletion": True}])
async def test_a_work_can_go_whose_kind_the_member_has_given_up(site: Site, ending: Object) -> None:
    widget: Object = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": new_name(), "namespace": "default"},
    }
    await define_widgets(site)
    work = await site.order(work_of(widget, **ending))
    await site.applied(name_of(work))
    # Nothing is applied any more: that would tell the executor of the kind's end.
    before = await site.work(name_of(work))
    suspended = with_value(before, True, "spec", "suspendDispatching")
    await commit(site.hub, site.work_path(name_of(work)), before, suspended)

    await undefine_widgets(site)
    await site.delete_work(name_of(work))

    await site.gone(name_of(work))


async def test_a_manifest_without_a_name_is_told_of_and_its_work_can_go(site: Site) -> None:
    whole = work_of(config_map(new_name()))
    nameless = {**whole["spec"]["workload"]["manifests"][0], "metadata": {"namespace": "default"}}
    work = await site.order(with_value(whole, [nameless], "spec", "workload", "manifests"))

    condition = await site.applied(name_of(work), "False")
    assert "has no name" in condition["message"]

    await site.delete_work(name_of(work))
    await site.gone(name_of(work))


async def test_a_deployment_reports_its_status_as_the_members_controllers_write_it(
    site: Site,
) -> None:
    name = new_name()
    work = await site.order(work_of(deployment(name, replicas=2)))
    await site.applied(name_of(work))
    place = ResourcePath(DEPLOYMENTS, "default", name)
    live = await site.member.get(place)
    counted = {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
    }
    await site.member.update(
        place.with_subresource("status"), {**live, "status": counted}, site.foreign
    )

    async def reported() -> Object | None:
        status = (await site.work(name_of(work)))["status"]["manifestStatuses"][0]
        return status if status["health"] == "Healthy" else None

    status = await until(reported)
    assert status["status"] == {**counted, "generation": 1, "resourceTemplateGeneration": 2}


async def test_taking_over_a_running_deployment_leaves_its_pod_template_alone(site: Site) -> None:
    name = new_name()
    place = ResourcePath(DEPLOYMENTS, "default", name)
    await site.member.create(place.collection, deployment(name, replicas=2), site.foreign)
    await inject(site, place)
    await autoscale(site, place, replicas=5)
    before = await site.member.get(place)
    assert find_at(before, "spec", "replicas") == 5

    work = await site.order(work_of(deployment(name, replicas=2), resolution="overwrite"))
    await site.applied(name_of(work))

    after = await site.member.get(place)
    assert after["spec"] == before["spec"], "no pod has a reason to restart, or to go"
    assert labels_of(after)[stamps.MANAGED] == "true"
    assert annotations_of(after)["deployment.kubernetes.io/revision"] == "1"
    assert annotations_of(after)["team"] == "payments"


async def inject(site: Site, place: ResourcePath) -> None:
    """Add what injectors, controllers and other teams add: each under a name of its own."""
    live = await site.member.get(place)
    injected = {
        "metadata": {"resourceVersion": resource_version_of(live)},
        "spec": {
            "template": {
                "metadata": {"annotations": {"sidecar.example.com/status": "injected"}},
                "spec": {
                    "containers": [{"name": "proxy", "image": "proxy:1"}],
                    "volumes": [{"name": "certs", "emptyDir": {}}],
                },
            }
        },
    }
    injector = WriteOptions(field_manager="sidecar-injector")
    live = await site.member.patch(place, PatchType.STRATEGIC, injected, injector)
    noted = {
        "metadata": {
            "resourceVersion": resource_version_of(live),
            "annotations": {"deployment.kubernetes.io/revision": "1", "team": "payments"},
        }
    }
    await site.member.patch(place, PatchType.MERGE, noted, site.foreign)


async def autoscale(site: Site, place: ResourcePath, *, replicas: int) -> None:
    scale = await site.member.get(place.with_subresource("scale"))
    autoscaler = WriteOptions(field_manager="kube-controller-manager")
    wanted = with_value(scale, replicas, "spec", "replicas")
    await site.member.update(place.with_subresource("scale"), wanted, autoscaler)


async def test_a_person_who_scales_on_the_member_is_not_an_autoscaler(site: Site) -> None:
    name = new_name()
    place = ResourcePath(DEPLOYMENTS, "default", name)
    work = await site.order(work_of(deployment(name, replicas=2)))
    await site.applied(name_of(work))

    scale = await site.member.get(place.with_subresource("scale"))
    await site.member.update(
        place.with_subresource("scale"), with_value(scale, 9, "spec", "replicas"), site.foreign
    )

    async def is_back() -> bool:
        return find_at(await site.member.get(place), "spec", "replicas") == 2

    await until(is_back)
    event = await site.event("DriftRepaired", name)
    assert "spec.replicas (changed by kubectl)" in event["message"]
