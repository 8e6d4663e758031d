"""Recorded scenes on our hub: templates and bindings carry what Karmada left on them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.detection import CLUSTER_ROLES, detecting
from tests.corpus import load_scenario

from clusterspace.apis import stamps
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    uid_of,
    with_value,
)
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import delete, edit, until

RESOURCES = {
    "ClusterPropagationPolicy": CLUSTER_PROPAGATION_POLICIES,
    "ClusterResourceBinding": CLUSTER_RESOURCE_BINDINGS,
    "ClusterRole": CLUSTER_ROLES,
    "ConfigMap": CONFIG_MAPS,
    "Deployment": DEPLOYMENTS,
    "OverridePolicy": OVERRIDE_POLICIES,
    "PropagationPolicy": PROPAGATION_POLICIES,
    "ResourceBinding": RESOURCE_BINDINGS,
}
WORDS = {"rb": "ResourceBinding", "deploy": "Deployment", "cm": "ConfigMap"}
IDS = (
    stamps.POLICY_ID,
    stamps.CLUSTER_POLICY_ID,
    stamps.BINDING_ID,
    stamps.CLUSTER_BINDING_ID,
)
OF_OTHERS = (stamps.APPLIED_PLACEMENT, "kubectl.kubernetes.io/last-applied-configuration")
COMPARED = ("name", "namespace", "finalizers")


@pytest_asyncio.fixture
async def hub_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    directory = tmp_path_factory.mktemp("hub")
    async with hub_for_test(directory) as settings, client_for_test(settings) as hub_client:
        yield hub_client


@pytest.mark.parametrize(
    ("scene", "least"),
    [
        ("duplicated", 6),
        ("divided", 2),
        ("override_and_cluster_scope", 6),
        ("taints_and_cordon", 4),
        ("unschedulable_and_missing", 1),
        ("conflict_matrix", 9),
    ],
)
async def test_stamps_and_bindings_are_as_recorded(
    hub_client: ClusterClient, scene: str, least: int
) -> None:
    seen = 0
    async with detecting(hub_client):
        for step in load_scenario("karmada", scene)["steps"]:
            await act(hub_client, step)
            for place, recorded in sightings(step):
                await until(lambda at=place, like=recorded: is_alike(hub_client, at, like))
                seen += 1

    assert seen >= least


async def act(hub_client: ClusterClient, step: Object) -> None:
    """Do on our hub what was done on the recorded one; members have no part in this."""
    match step.get("action"):
        case "apply to hub":
            for manifest in step["manifests"]:
                place = resource_path_of(manifest)
                await hub_client.create(place.collection, manifest)
        case "create ns shop":
            await hub_client.create(ResourcePath(NAMESPACES), namespace("shop"))
        case "scale on hub to 3":
            place = ResourcePath(DEPLOYMENTS, "default", "dup")
            await edit(hub_client, place, lambda held: with_value(held, 3, "spec", "replicas"))
        case "template deleted on hub":
            await delete(hub_client, ResourcePath(DEPLOYMENTS, "default", "dup"))
        case "ClusterPropagationPolicy deleted, templates kept":
            await delete(hub_client, ResourcePath(CLUSTER_PROPAGATION_POLICIES, "", "cpp"))
        case _:
            pass


def sightings(step: Object) -> list[tuple[ResourcePath, Object | None]]:
    """Return the templates and bindings a step looked at, and what was there."""
    words = str(step.get("see") or "").split()
    if not words or words[0] != "hub:":
        return []
    found: Object | None = step["objects"]
    if found is None:
        kind = WORDS.get(words[1])
        is_one = kind is not None and len(words) == 3
        return (
            [(ResourcePath(RESOURCES[kind], "default", words[2]), None)] if is_one and kind else []
        )
    listed = found.get("items", [found])
    kinds = ("Deployment", "ConfigMap", "ResourceBinding", "ClusterResourceBinding")
    return [(resource_path_of(each), each) for each in listed if each["kind"] in kinds]


def resource_path_of(kube_object: Object) -> ResourcePath:
    metadata = metadata_of(kube_object)
    return ResourcePath(
        RESOURCES[kube_object["kind"]], metadata.get("namespace", ""), name_of(kube_object)
    )


async def is_alike(hub_client: ClusterClient, place: ResourcePath, recorded: Object | None) -> bool:
    held = await hub_client.find(place)
    if recorded is None:
        return held is None or is_being_deleted(held)
    if held is None or essence(held) != essence(recorded):
        return False
    return "spec" not in held or await knows_its_template(hub_client, held)


async def knows_its_template(hub_client: ClusterClient, held: Object) -> bool:
    """Whether a binding names its template by the UID and follows the policy by the ID it has."""
    about = find_at(held, "spec", "resource")
    if about is None:
        return True
    place = ResourcePath(RESOURCES[about["kind"]], about.get("namespace", ""), about["name"])
    template = await hub_client.get(place)
    owner = metadata_of(held)["ownerReferences"][0]["uid"]
    ids = [[labels_of(each).get(label) for label in IDS[:2]] for each in (held, template)]
    return about["uid"] == owner == uid_of(template) and ids[0] == ids[1]


def essence(kube_object: Object) -> Object:
    """Return what the detector wrote, with symbols for what differs from run to run."""
    metadata = metadata_of(kube_object)
    told: Object = {key: metadata[key] for key in COMPARED if key in metadata}
    told["labels"] = {
        key: "<id>" if key in IDS else value for key, value in labels_of(kube_object).items()
    }
    told["annotations"] = {
        key: value for key, value in annotations_of(kube_object).items() if key not in OF_OTHERS
    }
    owners = metadata.get("ownerReferences") or []
    told["owners"] = [{**owner, "uid": "<uid>"} for owner in owners]
    if "resource" not in (kube_object.get("spec") or {}):
        return {**told, "generation": metadata.get("generation")}
    return {**told, "spec": _spec(kube_object["spec"])}


def _spec(spec: Object) -> dict[str, Any]:
    about = {**spec["resource"], "uid": "<uid>", "resourceVersion": "<rv>"}
    others = {key: value for key, value in spec.items() if key != "clusters"}
    return {**others, "resource": about}
