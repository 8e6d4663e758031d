"""Works and statuses against a live hub equal those that Karmada made, field by field."""

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest_asyncio
from tests.component.works_site import Running, Site, running_works, work_id_of
from tests.corpus import load_scenario

from clusterspace.apis import stamps
from clusterspace.apis.policies import OVERRIDE_POLICIES
from clusterspace.apis.works import binding_key_of, cluster_of, manifests_of, resource_for
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import until

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
RESOURCES = {
    "Deployment": DEPLOYMENTS,
    "ConfigMap": CONFIG_MAPS,
    "ClusterRole": GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles"),
}
CLAIMS = frozenset(
    {
        stamps.POLICY_ID,
        stamps.POLICY_NAMESPACE,
        stamps.POLICY_NAME,
        stamps.CLUSTER_POLICY_ID,
        stamps.CLUSTER_POLICY_NAME,
    }
)
SERVERS = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"})


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        site = Site(hub_client)
        await site.join("member1")
        await site.join("member2")
        yield site


@pytest_asyncio.fixture
async def running(site: Site) -> AsyncIterator[Running]:
    async with running_works(site.hub_client) as running:
        yield running


class Scene:
    """One recorded story, and the same objects on our hub."""

    def __init__(self, name: str, site: Site) -> None:
        self.steps: list[dict[str, Any]] = load_scenario("karmada", name)["steps"]
        self.site = site

    def seen(self, what: str) -> list[Any]:
        return [each["objects"] for each in self.steps if each.get("see") == what]

    def applied(self) -> Iterable[Object]:
        return (made for step in self.steps for made in step.get("manifests", ()))

    def manifest(self, kind: str, name: str) -> Object:
        asked = (kind, name, False)
        found = (
            each
            for step in self.steps
            for each in step.get("manifests", ())
            if (each["kind"], name_of(each), "legacy" in step["action"]) == asked
        )
        return next(found)

    async def template(self, binding: Object, works: Iterable[Object]) -> Object:
        """Make the template as a user and the detector do: first the object, then its claim."""
        wanted = binding["spec"]["resource"]
        manifest = self.manifest(wanted["kind"], wanted["name"])
        texts = (annotations_of(manifests_of(work)[0]).get(LAST_APPLIED) for work in works)
        noted = {**annotations_of(manifest), LAST_APPLIED: next(text for text in texts if text)}
        resource = RESOURCES[wanted["kind"]]
        made = await self.site.put(resource, with_metadata(manifest, annotations=noted))
        return await self.site.change(
            resource_path_of(resource, made), lambda held: _claimed(held, binding)
        )

    async def bind(self, binding: Object, template: Object) -> ResourcePath:
        """Make the binding as it was recorded, for our template."""
        live = {**binding["spec"]["resource"], "uid": uid_of(template)}
        reference = {**live, "resourceVersion": template["metadata"]["resourceVersion"]}
        owner = {**binding["metadata"]["ownerReferences"][0], "uid": uid_of(template)}
        made = {
            **binding,
            "metadata": {**_users_metadata(binding), "ownerReferences": [owner]},
            "spec": {**binding["spec"], "resource": reference},
        }
        place = ResourcePath(
            resource_for(namespace_of(binding)), namespace_of(binding), name_of(binding)
        )
        await self.site.hub_client.create(place.collection, made)
        scheduled = {"conditions": binding["status"]["conditions"][:1]}
        scheduled["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await self.site.change(place, lambda held: {**held, "status": scheduled})
        return place


def _claimed(template: Object, binding: Object) -> Object:
    labels = {key: each for key, each in labels_of(binding).items() if key in CLAIMS}
    annotations = {key: each for key, each in annotations_of(binding).items() if key in CLAIMS}
    return with_metadata(
        template,
        labels={**labels_of(template), **labels},
        annotations={**annotations_of(template), **annotations},
    )


def _users_metadata(kube_object: Object) -> Object:
    return {key: each for key, each in kube_object["metadata"].items() if key not in SERVERS}


def same_words(work: Object) -> Object:
    """Return a Work with the IDs that differ from run to run replaced by words."""
    text = json.dumps({**work, "metadata": _users_metadata(work), "status": None})
    template_uid = annotations_of(manifests_of(work)[0])[stamps.TEMPLATE_UID]
    return json.loads(text.replace(work_id_of(work), "WORK").replace(template_uid, "TEMPLATE"))


def works_of(recorded: Iterable[Object], binding: Object) -> dict[str, Object]:
    key = key_of(namespace_of(binding), name_of(binding))
    return {cluster_of(work): work for work in recorded if binding_key_of(work) == key}


async def replay(scene: Scene, binding: Object, recorded: Iterable[Object]) -> ResourcePath:
    """Make what was recorded happen on our hub, and compare all Works of one binding."""
    wanted = works_of(recorded, binding)
    assert wanted
    template = await scene.template(binding, wanted.values())
    place = await scene.bind(binding, template)
    await until_equal(scene.site, place, wanted)
    return place


async def until_equal(site: Site, place: ResourcePath, wanted: dict[str, Object]) -> None:
    expected = {cluster: same_words(work) for cluster, work in wanted.items()}
    seen: dict[str, Object] = {}

    async def holds() -> bool:
        works = await site.works_of(place)
        seen.update({cluster: same_words(work) for cluster, work in works.items()})
        return seen == expected

    try:
        await until(holds)
    finally:
        assert seen == expected


async def report_as_recorded(site: Site, place: ResourcePath, recorded: dict[str, Object]) -> None:
    for cluster, work in (await site.works_of(place)).items():
        status = json.loads(
            json.dumps(recorded[cluster]["status"]).replace("<time>", "2026-01-01T00:00:00Z")
        )
        await site.change(
            resource_path_of(GroupVersionResource("work.karmada.io", "v1alpha1", "works"), work),
            lambda held, status=status: {**held, "status": status},
        )


async def until_told(site: Site, place: ResourcePath, recorded: Object) -> None:
    """Wait until the binding says what was recorded."""
    wanted = (recorded["aggregatedStatus"], _timeless(recorded["conditions"]))
    seen: Any = None

    async def holds() -> bool:
        nonlocal seen
        status = (await site.hub_client.get(place)).get("status") or {}
        seen = (status.get("aggregatedStatus"), _timeless(status.get("conditions") or []))
        return seen == wanted

    try:
        await until(holds)
    finally:
        assert seen == wanted


def _timeless(conditions: list[Object]) -> list[Object]:
    return [
        {key: each for key, each in held.items() if key != "lastTransitionTime"}
        for held in conditions
    ]


async def test_a_duplicated_deployment_has_the_recorded_works_and_statuses(
    site: Site, running: Running
) -> None:
    scene = Scene("duplicated", site)
    first, scaled, *_ = scene.seen("hub: works -A -l ")
    binding, after = scene.seen("hub: rb dup-deployment")[:2]

    place = await replay(scene, binding, first["items"])
    await report_as_recorded(site, place, works_of(first["items"], binding))
    await until_told(site, place, binding["status"])

    template = ResourcePath(DEPLOYMENTS, "default", "dup")
    shown = scene.seen("hub: deploy dup")[0]["status"]
    assert (await site.hub_client.get(template))["status"] == shown

    await site.change(template, lambda held: {**held, "spec": {**held["spec"], "replicas": 3}})
    wanted = {key: after["spec"][key] for key in ("clusters", "replicas")}
    await site.change(place, lambda held: {**held, "spec": {**held["spec"], **wanted}})
    await until_equal(site, place, works_of(scaled["items"], binding))


async def test_a_divided_deployment_has_the_recorded_works_and_statuses(
    site: Site, running: Running
) -> None:
    scene = Scene("divided", site)
    (works,), (binding,) = scene.seen("hub: works -A -l "), scene.seen("hub: rb div-deployment")

    place = await replay(scene, binding, works["items"])
    await report_as_recorded(site, place, works_of(works["items"], binding))
    await until_told(site, place, binding["status"])

    shown = scene.seen("hub: deploy div")[0]["status"]
    assert (await site.hub_client.get(ResourcePath(DEPLOYMENTS, "default", "div")))[
        "status"
    ] == shown


async def test_an_overridden_deployment_has_the_recorded_works(
    site: Site, running: Running
) -> None:
    scene = Scene("override_and_cluster_scope", site)
    (works,), (binding,) = scene.seen("hub: works -A -l "), scene.seen("hub: rb ovr-deployment")
    await site.put(OVERRIDE_POLICIES, scene.manifest("OverridePolicy", "ovr"))

    place = await replay(scene, binding, works["items"])
    await report_as_recorded(site, place, works_of(works["items"], binding))
    await until_told(site, place, binding["status"])


async def test_objects_of_a_cluster_policy_have_the_recorded_works(
    site: Site, running: Running
) -> None:
    scene = Scene("override_and_cluster_scope", site)
    (works,) = scene.seen("hub: works -n karmada-es-member1")
    bindings = [scene.seen("hub: crb")[0]["items"][0], scene.seen("hub: rb shared-configmap")[0]]

    for binding in bindings:
        place = await replay(scene, binding, works["items"])
        await report_as_recorded(site, place, works_of(works["items"], binding))
        await until_told(site, place, binding["status"])


async def test_the_conflict_matrix_has_the_recorded_works_and_statuses(
    site: Site, running: Running
) -> None:
    scene = Scene("conflict_matrix", site)
    (works,) = scene.seen("hub: works -n karmada-es-member1")
    seen = [each for each in scene.steps if each.get("see", "").startswith("hub: rb ")]
    assert len(seen) == 9

    for binding in (each["objects"] for each in seen):
        place = await replay(scene, binding, works["items"])
        recorded = works_of(works["items"], binding)
        await report_as_recorded(site, place, recorded)
        await until_told(site, place, binding["status"])


async def test_a_namespace_has_the_recorded_work(site: Site, running: Running) -> None:
    scene = Scene("unschedulable_and_missing", site)
    (works,) = scene.seen("hub: works -n karmada-es-member1")
    recorded = next(each for each in works["items"] if name_of(each).startswith("shop-"))
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    made = await site.hub_client.create(ResourcePath(NAMESPACES), shop)
    place = ResourcePath(
        GroupVersionResource("work.karmada.io", "v1alpha1", "works"),
        "karmada-es-member1",
        name_of(recorded),
    )

    async def is_there() -> bool:
        return not await site.is_gone(place)

    await until(is_there)
    work = await site.hub_client.get(place)
    recorded["metadata"]["ownerReferences"][0]["uid"] = uid_of(made)
    assert same_words(work)["spec"] == same_words(recorded)["spec"]
    assert _users_metadata(work)["ownerReferences"] == recorded["metadata"]["ownerReferences"]
