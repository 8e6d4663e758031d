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

WRITES = 8
REFUSED = (
    ".clusterResourceSelectors[].labelSelector",
    "overrideRules[].clusterSelector.clusterSelectorTerms[].property",
    "preference.propertySelector",
    "requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms[].propertySorter",
    "beforeStageTasks[].waitTime",
)
"""Parts of the fields that no object can have: the hub refuses them in every version."""
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


BOTH_WAYS: Object = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
}
NODES = "kubernetes-fleet.io/node-count"
PREFERRED: Object = {
    "labelSelector": BOTH_WAYS,
    "propertySorter": {"name": NODES, "sortOrder": "Ascending"},
}
REQUIRED: Object = {
    "labelSelector": BOTH_WAYS,
    "propertySelector": {"matchExpressions": [{"name": NODES, "operator": "Gt", "values": ["1"]}]},
}
EXAMPLES: dict[str, Any] = {
    "affinity": {
        "clusterAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": PREFERRED}
            ],
            "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [REQUIRED]},
        }
    },
    "beforeStageTasks": [{"type": "Approval"}],
    "afterStageTasks": [{"type": "TimedWait", "waitTime": "1h"}],
    "clusterSelectorTerms": [{"labelSelector": BOTH_WAYS}],
    "identity": {"kind": "ServiceAccount", "name": "x", "namespace": "app", "apiGroup": ""},
    "jsonPatchOverrides": [{"op": "add", "path": "/data", "value": {"any": ["thing"]}}],
    "labelSelector": BOTH_WAYS,
    "placementType": "PickN",
    "group": "",
    "version": "v1",
    "kind": "Namespace",
    "reportBackStrategy": {"type": "Mirror", "destination": "WorkAPI"},
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
}
"""Values of fields that have rules among each other, by name."""

Form = tuple[frozenset[str], dict[str, Any]]
"""What is left out of an object because it excludes something else, and what is said instead."""

BY_LABELS: Object = {
    "group": "",
    "version": "v1",
    "kind": "Namespace",
    "labelSelector": BOTH_WAYS,
    "selectionScope": "NamespaceWithResources",
}
PICKS_BY_LABEL: Form = (
    frozenset({"clusterNames", "serverSideApplyConfig"}),
    {"resourceSelectors": [BY_LABELS]},
)
PICKS_BY_NAME: Form = (
    frozenset(
        {"labelSelector", "numberOfClusters", "affinity", "topologySpreadConstraints"}
        | {"tolerations"}
    ),
    {
        "placementType": "PickFixed",
        "clusterNames": ["x"],
        "applyStrategy": {
            "type": "ServerSideApply",
            "serverSideApplyConfig": {"force": True},
            "whenToApply": "IfNotDrifted",
            "whenToTakeOver": "IfNoDiff",
            "comparisonOption": "FullComparison",
            "allowCoOwnership": True,
        },
    },
)
PLAIN: Form = (frozenset(), {})
FORMS: dict[str, tuple[Form, ...]] = {
    "ClusterResourceOverride": ((frozenset({"labelSelector"}), {}),),
    "ClusterResourcePlacementDisruptionBudget": (
        (frozenset({"minAvailable"}), {}),
        (frozenset({"maxUnavailable"}), {}),
    ),
    "ClusterResourcePlacement": (PICKS_BY_LABEL, PICKS_BY_NAME),
    "ResourcePlacement": (PICKS_BY_LABEL, PICKS_BY_NAME),
}
"""The objects that together have every field of a kind, where fields exclude each other."""


def example_of(schema: Object, field: str, form: Form) -> Any:
    """Return a value of a schema with as many of its fields as can be had at once."""
    apart, instead = form
    if field in instead:
        return instead[field]
    if field in EXAMPLES:
        return EXAMPLES[field]
    if "enum" in schema:
        return schema.get("default", schema["enum"][0])
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    match schema.get("type"):
        case "object" if schema.get("properties"):
            return {
                name: example_of(each, name, form)
                for name, each in schema["properties"].items()
                if name not in apart
            }
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return {"key": example_of(schema["additionalProperties"], "", form)}
        case "array":
            return [example_of(schema["items"], "", form)]
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
    """Write to an object in a way that people and programs do: one label, or one word, changes."""
    labels = {"test/write": str(number)}
    held = await hub.get(path)
    version = held["metadata"]["resourceVersion"]
    match how:
        case "put":
            await hub.update(path, with_metadata(held, labels=labels))
        case "merge":
            changed = {"metadata": {"labels": labels, "resourceVersion": version}}
            await hub.patch(path, PatchType.MERGE, changed)
        case "json":
            tested = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            added = {"op": "add", "path": "/metadata/labels", "value": labels}
            await hub.patch(path, PatchType.JSON, [tested, added])
        case "status put":
            at = path.with_subresource("status")
            await hub.update(at, {**held, "status": said_anew(held.get("status"), number)})
        case "status merge":
            status = said_anew(held.get("status"), number)
            changed = {"metadata": {"resourceVersion": version}, "status": status}
            await hub.patch(path.with_subresource("status"), PatchType.MERGE, changed)
        case _:
            applied: Object = {
                "apiVersion": held["apiVersion"],
                "kind": held["kind"],
                "metadata": {"name": path.name, "labels": labels},
            }
            # One who applies by several versions in turn, and others who do it once.
            manager = "the-same" if number % 2 else f"m{number}"
            await hub.apply(path, applied, WriteOptions(field_manager=manager, force=True))


def said_anew(status: Any, number: int) -> Any:
    """Return a status whose first condition, if it has one, says something else."""
    conditions = (status or {}).get("conditions")
    if not conditions:
        return status
    first = {**conditions[0], "message": str(number)}
    return {**status, "conditions": [first, *conditions[1:]]}


def unsaid(value: Any) -> Any:
    """Return content without what `write` changes in a status."""
    conditions = value["status"].get("conditions") if value.get("status") else None
    return {**value, "status": said_anew(value["status"], 0)} if conditions else value


@pytest.mark.parametrize("name", SEVERAL)
async def test_any_writes_by_any_versions_lose_no_field(hub: ClusterClient, name: str) -> None:
    definition = SEVERAL[name]["spec"]
    versions = {each["name"]: each for each in definition["versions"] if each["served"]}
    forms = FORMS.get(definition["names"]["kind"], (PLAIN,))
    for first in versions:
        for index, form in enumerate(forms):
            await story(hub, SEVERAL[name], first, form, f"whole-{first}-{index}")


async def story(hub: ClusterClient, made: Object, first: str, form: Form, object_name: str) -> None:
    """Store a whole object by one version, write by all of them, and look for what is lost."""
    definition, name = made["spec"], made["metadata"]["name"]
    versions = {each["name"]: each for each in definition["versions"] if each["served"]}
    inside = "app" if definition["scope"] == "Namespaced" else ""
    schema = versions[first]["schema"]["openAPIV3Schema"]
    resource = GroupVersionResource(definition["group"], first, definition["names"]["plural"])
    whole = {
        key: example_of(each, key, form if key != "status" else PLAIN)
        for key, each in schema["properties"].items()
        if key not in ("apiVersion", "kind", "metadata")
    }
    has_status = "status" in (versions[first].get("subresources") or {})
    content = {key: each for key, each in whole.items() if key != "status" or not has_status}
    if definition["names"]["kind"] == "ResourcePlacement":
        # It selects in its namespace alone.
        selectors = [{**each, "kind": "ConfigMap"} for each in content["spec"]["resourceSelectors"]]
        content["spec"] = {**content["spec"], "resourceSelectors": selectors}
    body: Object = {
        "apiVersion": resource.api_version,
        "kind": definition["names"]["kind"],
        "metadata": {"name": object_name, **({"namespace": inside} if inside else {})},
        **content,
    }
    path = ResourcePath(resource, inside, object_name)
    stored = await hub.create(path.collection, body)
    if has_status and "status" in whole:
        status = {**stored, "status": whole["status"]}
        stored = await hub.update(path.with_subresource("status"), status)
    wanted = {key: stored.get(key) for key in whole}
    assert fields_of(whole) <= fields_of(wanted), "what was written is stored"

    # Any sequence, the same each time: what fails can be looked at.
    random = Random(f"{name} {object_name}")
    ways = ["put", "merge", "json", "apply", "apply"]
    ways += ["status put", "status merge"] if has_status else []
    for number in range(WRITES):
        version = random.choice(sorted(versions))
        other = GroupVersionResource(resource.group, version, resource.resource)
        how = random.choice(ways)
        await write(hub, ResourcePath(other, inside, path.name), how, number)
        held = await hub.get(path)
        kept = {key: held.get(key) for key in whole}
        assert fields_of(wanted) - fields_of(kept) == set(), f"lost by {how} of {version}"
        assert unsaid(kept) == unsaid(wanted), f"changed by {how} of {version}"
    await hub.delete(path, DeleteOptions(uid_of(stored)))


async def test_every_field_of_every_version_is_in_one_of_these_objects() -> None:
    """A field that no object here has could be lost without a test that says so."""
    missing: list[str] = []
    for name, each in SEVERAL.items():
        kind = each["spec"]["names"]["kind"]
        for version in each["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            known: set[str] = set()
            for form in FORMS.get(kind, (PLAIN,)):
                for key, part in schema["properties"].items():
                    value = example_of(part, key, form if key != "status" else PLAIN)
                    known |= fields_of(value, f".{key}")
            missing += [
                f"{name} {version['name']} {field}"
                for field in declared(schema)
                if field and field not in known and not any(part in field for part in REFUSED)
            ]
    assert missing == []


def declared(schema: Object, path: str = "") -> set[str]:
    """Return the path of every field that a schema names."""
    found = {path}
    for key, each in (schema.get("properties") or {}).items():
        found |= declared(each, f"{path}.{key}")
    if isinstance(schema.get("items"), dict):
        found |= declared(schema["items"], f"{path}[]")
    return found
