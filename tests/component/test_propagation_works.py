"""Works against a live hub: written, put back, moved, withdrawn, and refused with a reason."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.works_site import Running, Site, running_works

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.policies import CLUSTER_OVERRIDE_POLICIES, OVERRIDE_POLICIES
from clusterspace.apis.works import manifests_of, preserves_resources, suspends_dispatching
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import (
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    deployment,
    namespace,
)
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("hub")
    async with hub_for_test(directory) as settings, client_for_test(settings) as hub_client:
        site = Site(hub_client)
        await site.join("member1", labels={"place": "north"})
        await site.join("member2", labels={"place": "south"})
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(site: Site) -> AsyncIterator[Running]:
    async with running_works(site.hub_client) as running:
        yield running


def new_name() -> str:
    return f"web-{next(_numbers)}"


async def new_template(site: Site) -> Object:
    return await site.put(DEPLOYMENTS, deployment(new_name(), replicas=3))


def targets(*names: str) -> list[Object]:
    return [{"name": each} for each in names]


def override_policy(template: Object, rules: list[Object]) -> Object:
    selector = {
        "apiVersion": template["apiVersion"],
        "kind": template["kind"],
        "name": name_of(template),
    }
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"name": name_of(template), "namespace": "default"},
        "spec": {"resourceSelectors": [selector], "overrideRules": rules},
    }


def condition_of(binding: Object) -> Object | None:
    return find_condition(find_at(binding, "status", "conditions"), "WorksWritten")


async def test_every_target_and_every_cluster_that_requires_it_gets_a_work(
    site: Site, running: Running
) -> None:
    template = await new_template(site)
    required = [{"name": "other", "namespace": "default", "clusters": targets("member2")}]
    place = await site.bind(template, "member1", replicas=2, requiredBy=required)

    works = await site.until_works(place, "member1", "member2")

    assert [find_at(manifests_of(each)[0], "spec", "replicas") for each in works.values()] == [2, 3]
    binding = await site.hub_client.get(place)
    assert stamps.BINDING_FINALIZER in binding["metadata"]["finalizers"]


async def test_a_change_of_the_template_reaches_its_works(site: Site, running: Running) -> None:
    template = await new_template(site)
    place = await site.bind(template, "member1")
    before = (await site.until_works(place, "member1"))["member1"]
    changed = await site.change(
        resource_path_of(DEPLOYMENTS, template),
        lambda held: with_value(held, 7, "spec", "replicas"),
    )
    version = changed["metadata"]["resourceVersion"]
    await site.change(
        place, lambda held: with_value(held, version, "spec", "resource", "resourceVersion")
    )

    async def replicas() -> Any:
        work = (await site.works_of(place))["member1"]
        return find_at(manifests_of(work)[0], "spec", "replicas")

    await until_equal(replicas, 7)
    after = (await site.works_of(place))["member1"]
    assert (uid_of(after), labels_of(after)) == (uid_of(before), labels_of(before))


async def test_a_work_that_somebody_changed_or_deleted_comes_back(
    site: Site, running: Running
) -> None:
    place = await site.bind(await new_template(site), "member1")
    made = (await site.until_works(place, "member1"))["member1"]
    await site.change(
        resource_path_of(WORKS, made),
        lambda held: with_value(held, True, "spec", "suspendDispatching"),
    )

    async def is_suspended() -> bool:
        return suspends_dispatching((await site.works_of(place))["member1"])

    await until_equal(is_suspended, False)
    await site.delete(resource_path_of(WORKS, made))
    await site.execute_deletions()

    async def is_new() -> bool:
        held = (await site.works_of(place)).get("member1")
        return held is not None and uid_of(held) != uid_of(made)

    await until_equal(is_new, True)


async def test_suspension_and_preservation_are_told_per_cluster(
    site: Site, running: Running
) -> None:
    place = await site.bind(
        await new_template(site),
        "member1",
        "member2",
        suspension={"dispatchingOnClusters": {"clusterNames": ["member2"]}},
        preserveResourcesOnDeletion=True,
    )

    works = await site.until_works(place, "member1", "member2")

    assert {name: suspends_dispatching(work) for name, work in works.items()} == {
        "member1": False,
        "member2": True,
    }
    assert all(preserves_resources(work) for work in works.values())


async def test_a_cluster_that_is_no_longer_wanted_loses_its_work_after_the_new_one_has_its_own(
    site: Site, running: Running
) -> None:
    place = await site.bind(await new_template(site), "member1")
    await site.until_works(place, "member1")

    await site.change(place, lambda held: with_value(held, targets("member2"), "spec", "clusters"))
    await site.until_works(place, "member1", "member2")
    await until_equal(lambda: is_leaving(site, place, "member1"), True)
    await site.execute_deletions()

    await site.until_works(place, "member2")


async def test_a_cluster_that_leaves_gets_no_new_works(site: Site, running: Running) -> None:
    await site.join("leaving", finalizers=["example.com/leaving"])
    place = await site.bind(await new_template(site), "leaving", "member1")
    await site.until_works(place, "leaving", "member1")

    await site.delete(ResourcePath(CLUSTERS, "", "leaving"))
    work = (await site.works_of(place))["leaving"]
    await site.delete(resource_path_of(WORKS, work))
    await site.execute_deletions()
    other = await site.bind(await new_template(site), "leaving", "member1")
    await site.until_works(other, "member1")

    assert set(await site.works_of(place)) == {"member1"}


async def is_leaving(site: Site, place: ResourcePath, cluster: str) -> bool:
    work = (await site.works_of(place)).get(cluster)
    return work is None or bool(work["metadata"].get("deletionTimestamp"))


async def test_an_override_that_cannot_be_made_is_told_and_hurts_no_other_cluster(
    site: Site, running: Running
) -> None:
    template = await new_template(site)
    absent = {"path": "/spec/absent/field", "operator": "replace", "value": 1}
    rule = {
        "targetCluster": {"clusterNames": ["member2"]},
        "overriders": {"plaintext": [absent]},
    }
    policy = await site.put(OVERRIDE_POLICIES, override_policy(template, [rule]))

    place = await site.bind(template, "member1", "member2")
    await site.until_works(place, "member1")
    await until_equal(lambda: has_condition(site, place), True)

    told = condition_of(await site.hub_client.get(place)) or {}
    assert (told["status"], told["reason"]) == ("False", "ApplyOverridePolicyFailed")
    assert told["message"] == (
        f"member2: override policy {name_of(policy)}: plaintext[0]: "
        "there is nothing at /spec/absent"
    )
    events = await site.events(running, "ApplyOverridePolicyFailed")
    assert {("Deployment", told["message"]), ("ResourceBinding", told["message"])} <= events

    await site.delete(resource_path_of(OVERRIDE_POLICIES, policy))
    await site.until_works(place, "member1", "member2")
    await until_equal(lambda: has_condition(site, place), False)


async def has_condition(site: Site, place: ResourcePath) -> bool:
    return condition_of(await site.hub_client.get(place)) is not None


async def test_an_override_follows_the_labels_of_clusters(site: Site, running: Running) -> None:
    template = await new_template(site)
    rule = {
        "targetCluster": {"labelSelector": {"matchLabels": {"tier": "gold"}}},
        "overriders": {"labelsOverrider": [{"operator": "add", "value": {"tier": "gold"}}]},
    }
    await site.put(OVERRIDE_POLICIES, override_policy(template, [rule]))
    place = await site.bind(template, "member1")
    await site.until_works(place, "member1")

    async def tier() -> str | None:
        work = (await site.works_of(place))["member1"]
        return labels_of(manifests_of(work)[0]).get("tier")

    assert await tier() is None
    cluster = ResourcePath(CLUSTERS, name="member1")
    await site.change(
        cluster, lambda held: with_metadata(held, labels={**labels_of(held), "tier": "gold"})
    )
    await until_equal(tier, "gold")
    noted = annotations_of((await site.works_of(place))["member1"])
    assert stamps.APPLIED_OVERRIDES in noted


async def test_a_work_of_somebody_else_is_left_alone_and_the_binding_says_so(
    site: Site, running: Running
) -> None:
    template = await new_template(site)
    foreign = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": stamps.work_name("Deployment", "default", name_of(template)),
            "namespace": "karmada-es-member1",
        },
        "spec": {"workload": {"manifests": [config_map("other")]}},
    }
    await site.put(WORKS, foreign)

    place = await site.bind(template, "member1")
    await until_equal(lambda: has_condition(site, place), True)

    told = condition_of(await site.hub_client.get(place)) or {}
    assert told["reason"] == "SyncWorkFailed"
    held = await site.hub_client.get(resource_path_of(WORKS, foreign))
    assert name_of(manifests_of(held)[0]) == "other"


async def test_a_deleted_binding_withdraws_its_works_and_then_goes(
    site: Site, running: Running
) -> None:
    place = await site.bind(await new_template(site), "member1", "member2")
    await site.until_works(place, "member1", "member2")

    await site.delete(place)
    await until(lambda: site.is_gone(place))

    works = await site.works_of(place)
    assert len(works) == 2
    assert all(work["metadata"].get("deletionTimestamp") for work in works.values())
    await site.execute_deletions()


async def test_works_learn_that_members_keep_their_objects_before_they_are_deleted(
    site: Site, running: Running
) -> None:
    place = await site.bind(await new_template(site), "member1")
    await site.until_works(place, "member1")

    await site.change(
        place, lambda held: with_value(held, True, "spec", "preserveResourcesOnDeletion")
    )
    await site.delete(place)
    await until(lambda: site.is_gone(place))

    works = await site.works_of(place)
    assert [preserves_resources(work) for work in works.values()] == [True]
    await site.execute_deletions()


async def test_namespaces_go_to_every_cluster_but_those_that_are_reserved_or_told_to_stay(
    site: Site, running: Running
) -> None:
    shop, local = f"shop-{next(_numbers)}", f"local-{next(_numbers)}"
    skipped = with_metadata(namespace(local), labels={stamps.SKIP_AUTO_PROPAGATION: "true"})
    for made in (skipped, namespace(f"kube-{shop}"), namespace(shop)):
        await site.hub_client.create(ResourcePath(NAMESPACES), made)

    async def synced() -> set[str]:
        works = await site.hub_client.list_objects(ResourcePath(WORKS, "karmada-es-member2"))
        manifests = (manifests_of(work)[0] for work in works)
        return {name_of(each) for each in manifests if each["kind"] == "Namespace"}

    async def is_there() -> bool:
        return shop in await synced()

    await until(is_there)
    assert (
        not {local, f"kube-{shop}", "default", "kube-system", "karmada-es-member1"} & await synced()
    )


async def test_a_cluster_that_joins_gets_every_namespace_with_its_overrides(
    site: Site, running: Running
) -> None:
    shop = f"shop-{next(_numbers)}"
    await site.hub_client.create(ResourcePath(NAMESPACES), namespace(shop))
    rule = {
        "targetCluster": {"clusterNames": ["member3"]},
        "overriders": {"labelsOverrider": [{"operator": "add", "value": {"where": "three"}}]},
    }
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterOverridePolicy",
        "metadata": {"name": shop},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "Namespace", "name": shop}],
            "overrideRules": [rule],
        },
    }
    await site.put(CLUSTER_OVERRIDE_POLICIES, policy)

    await site.join("member3")
    place = ResourcePath(WORKS, "karmada-es-member3", stamps.work_name("Namespace", "", shop))

    async def where() -> str | None:
        if await site.is_gone(place):
            return None
        return labels_of(manifests_of(await site.hub_client.get(place))[0]).get("where")

    await until_equal(where, "three")
    work = await site.hub_client.get(place)
    assert stamps.APPLIED_CLUSTER_OVERRIDES in annotations_of(work)


async def test_a_policy_may_claim_a_namespace_whose_works_are_there(
    site: Site, running: Running
) -> None:
    shop = f"shop-{next(_numbers)}"
    made = await site.hub_client.create(ResourcePath(NAMESPACES), namespace(shop))
    work = ResourcePath(WORKS, "karmada-es-member1", stamps.work_name("Namespace", "", shop))

    async def is_there() -> bool:
        return not await site.is_gone(work)

    await until(is_there)
    before = await site.hub_client.get(work)
    place = await site.bind(made, "member1")
    works = await site.until_works(place, "member1")

    assert uid_of(works["member1"]) == uid_of(before)
    assert stamps.CLUSTER_BINDING_ID in labels_of(works["member1"])
