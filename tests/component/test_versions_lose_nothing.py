"""Whatever is written, by whichever version of a kind: what others stored in the object stays."""

from collections.abc import AsyncGenerator
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from clusterspace.apis.crds import definitions
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, PatchType, WriteOptions
from clusterspace.kube.objects import Object, uid_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITES = 6
SEVERAL = {
    each["metadata"]["name"]: each
    for each in definitions()
    if len([v for v in each["spec"]["versions"] if v["served"]]) > 1
}
"""The definitions that serve one kind in several versions."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ClusterClient]:
    directory = tmp_path_factory.mktemp("hub")
    async with hub_for_test(directory) as settings, client_for_test(settings) as client:
        await client.create(ResourcePath(NAMESPACES), namespace("app"))
        yield client


EXAMPLES: dict[str, Any] = {
    "affinity": {
        "clusterAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"labelSelector": {"matchLabels": {"a": "b"}}}}
            ],
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [{"labelSelector": {"matchLabels": {"a": "b"}}}]
            },
        }
    },
    "beforeStageTasks": [{"type": "Approval"}],
    "afterStageTasks": [{"type": "TimedWait", "waitTime": "1h"}],
    "clusterSelectorTerms": [{"labelSelector": {"matchLabels": {"a": "b"}}}],
    "identity": {"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"},
    "jsonPatchOverrides": [{"op": "add", "path": "/data", "value": {"any": ["thing"]}}],
    "placementType": "PickN",
    "group": "",
    "version": "v1",
    "kind": "Namespace",
    "reportBackStrategy": {"type": "Mirror", "destination": "WorkAPI"},
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
}
"""Values of fields that have rules among each other, by name."""

APART: dict[str, frozenset[str]] = {
    "ClusterResourceOverride": frozenset({"labelSelector"}),
    "ClusterResourcePlacementDisruptionBudget": frozenset({"minAvailable"}),
    "ClusterResourcePlacement": frozenset(
        {"labelSelector", "clusterNames", "serverSideApplyConfig"}
    ),
    "ResourcePlacement": frozenset({"labelSelector", "clusterNames", "serverSideApplyConfig"}),
}
"""Fields that exclude one of the others, by kind."""


def example_of(schema: Object, field: str, apart: frozenset[str]) -> Any:
    """Return a value of a schema with as many of its fields as can be had at once."""
    if field in EXAMPLES:
        return EXAMPLES[field]
    if "enum" in schema:
        return schema.get("default", schema["enum"][0])
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    match schema.get("type"):
        case "object" if schema.get("properties"):
            return {
                name: example_of(each, name, apart)
                for name, each in schema["properties"].items()
                if name not in apart
            }
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return {"key": example_of(schema["additionalProperties"], "", apart)}
        case "array":
            return [example_of(schema["items"], "", apart)]
        case "integer":
            return max(1, int(schema.get("minimum", 1)))
        case "boolean":
            return True
        case "string":
            formats = {"date-time": "2026-01-01T00:00:00Z", "byte": "eA=="}
            return formats.get(schema.get("format", ""), "x")
        case _:
            return {"any": "thing"}


def fields_of(value: Any, path: str = "") -> set[str]:
    """Return the path of everything in a value."""
    if isinstance(value, dict):
        return {path}.union(*(fields_of(each, f"{path}.{key}") for key, each in value.items()))
    if isinstance(value, list):
        return {path}.union(*(fields_of(each, f"{path}[]") for each in value))
    return {path}


async def write(hub: ClusterClient, path: ResourcePath, how: str, number: int) -> None:
    """Write to an object in a way that people and programs do: a label changes, nothing else."""
    labels = {"test/write": str(number)}
    held = await hub.get(path)
    version = held["metadata"]["resourceVersion"]
    match how:
        case "put":
            await hub.update(path, with_metadata(held, labels=labels))
        case "merge":
            changed = {"metadata": {"labels": labels, "resourceVersion": version}}
            await hub.patch(path, PatchType.MERGE, changed)
        case _:
            applied: Object = {
                "apiVersion": held["apiVersion"],
                "kind": held["kind"],
                "metadata": {"name": path.name, "labels": labels},
            }
            await hub.apply(path, applied, WriteOptions(field_manager=f"m{number}", force=True))


@pytest.mark.parametrize("name", SEVERAL)
async def test_any_writes_by_any_versions_lose_no_field(hub: ClusterClient, name: str) -> None:
    definition = SEVERAL[name]["spec"]
    versions = {each["name"]: each for each in definition["versions"] if each["served"]}
    inside = "app" if definition["scope"] == "Namespaced" else ""
    for first in versions:
        schema = versions[first]["schema"]["openAPIV3Schema"]
        resource = GroupVersionResource(definition["group"], first, definition["names"]["plural"])
        content = {
            key: example_of(each, key, APART.get(definition["names"]["kind"], frozenset()))
            for key, each in schema["properties"].items()
            if key not in ("apiVersion", "kind", "metadata", "status")
        }
        if definition["names"]["kind"] == "ResourcePlacement":
            for each in content["spec"]["resourceSelectors"]:
                each["kind"] = "ConfigMap"  # it selects in its namespace alone
        metadata = {"name": f"whole-{first}", **({"namespace": inside} if inside else {})}
        body: Object = {
            "apiVersion": resource.api_version,
            "kind": definition["names"]["kind"],
            "metadata": metadata,
            **content,
        }
        path = ResourcePath(resource, inside, metadata["name"])
        stored = await hub.create(path.collection, body)
        wanted = fields_of({key: stored.get(key) for key in content})
        assert fields_of(content) <= wanted, "what was written is stored"

        # Any sequence, the same each time: what fails can be looked at.
        random = Random(f"{name} {first}")
        for number in range(WRITES):
            other = GroupVersionResource(
                resource.group, random.choice(sorted(versions)), resource.resource
            )
            how = random.choice(("put", "merge", "apply"))
            await write(hub, ResourcePath(other, inside, path.name), how, number)
            held = await hub.get(path)
            kept = fields_of({key: held.get(key) for key in content})
            assert wanted - kept == set(), f"lost by {how} of {other.version}"
        await hub.delete(path, DeleteOptions(uid_of(stored)))
