"""Objects that are there already: what policy and annotation say decides, for every kind and mode.

Nine cells: the policy's `conflictResolution` and the template's annotation, each unset, abort or
overwrite. The annotation wins, and what nobody says is abort.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.flows.stages import (
    CLUSTER_ROLES,
    KINDS,
    MEMBERS,
    MIXED,
    PULL,
    PUSH,
    Stage,
    kubectl_apply,
    resource_path_of,
    staged,
)

from clusterspace.apis import stamps, works
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.events import EVENTS
from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from clusterspace.testing.builders import config_map, deployment
from clusterspace.testing.steps import delete, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNSET, ABORT, OVERWRITE = "unset", "abort", "overwrite"
_ANSWERS = (UNSET, ABORT, OVERWRITE)
CELLS = tuple((field, annotation) for field in _ANSWERS for annotation in _ANSWERS)
MODES: dict[str, str] = {"push": MEMBERS[0], "pull": MEMBERS[1]}
"""Which member belongs to the hub in which mode."""
OLD, NEW = "old", "new"


def cluster_role(name: str, verb: str) -> Object:
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}],
    }


def subject(kind: str, name: str, content: str) -> Object:
    """Return an object of a kind that says something."""
    if kind == "ConfigMap":
        return config_map(name, {"says": content})
    if kind == "ClusterRole":
        return cluster_role(name, content)
    made = deployment(name)
    made["spec"]["template"]["spec"]["containers"][0]["image"] = f"web:{content}"
    return made


def content_of(kube_object: Object) -> str:
    """Return what an object says."""
    match kube_object["kind"]:
        case "ConfigMap":
            return kube_object["data"]["says"]
        case "ClusterRole":
            return kube_object["rules"][0]["verbs"][0]
        case _:
            image = kube_object["spec"]["template"]["spec"]["containers"][0]["image"]
            return image.removeprefix("web:")


def policy_for(manifest: Object, cluster: str, field: str) -> Object:
    is_namespaced = bool(namespace_of(manifest))
    selector = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    spec: Object = {
        "resourceSelectors": [{**selector, "name": name_of(manifest)}],
        "placement": {"clusterAffinity": {"clusterNames": [cluster]}},
    }
    if field != UNSET:
        spec["conflictResolution"] = field.capitalize()
    metadata: Object = {"name": f"{manifest['kind'].lower()}-{name_of(manifest)}"}
    if is_namespaced:
        metadata["namespace"] = namespace_of(manifest)
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy" if is_namespaced else "ClusterPropagationPolicy",
        "metadata": metadata,
        "spec": spec,
    }


@dataclass
class Cell:
    """One object that is there already, and the template of the same name."""

    stage: Stage
    cluster: str
    legacy: Object

    @property
    def member(self) -> ClusterClient:
        return self.stage.client_of(self.cluster)

    @property
    def work_place(self) -> ResourcePath:
        held = self.legacy
        name = stamps.work_name(held["kind"], namespace_of(held), name_of(held))
        return ResourcePath(WORKS, execution_namespace(self.cluster), name)

    async def applied(self) -> Object:
        """Return what the Work says, once it says anything."""

        async def said() -> Object | None:
            work = await self.stage.hub.find(self.work_place) or {}
            return find_condition(find_at(work, "status", "conditions"), "Applied")

        return await until(said)

    async def live(self) -> Object:
        return await self.member.get(resource_path_of(self.legacy))

    async def binding_is_applied(self) -> bool:
        namespace = namespace_of(self.legacy)
        place = ResourcePath(works.resource_for(namespace), namespace, works.name_for(self.legacy))

        async def said() -> Any:
            binding = await self.stage.hub.get(place)
            return find_condition(find_at(binding, "status", "conditions"), "FullyApplied")

        return is_true([await until(said)], "FullyApplied")

    async def events_about(self, name: str) -> list[str]:
        async def told() -> list[str]:
            events = await self.stage.hub.list_objects(ResourcePath(EVENTS))
            about = [each for each in events if each["involvedObject"]["name"] == name]
            return [each["message"] for each in about if each["reason"] == "SyncFailed"]

        return await until(told)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    async with staged(request.param, MIXED, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


async def conflict(stage: Stage, kind: str, mode: str, cell: tuple[str, str]) -> Cell:
    """Put an object on a member, and a template of the same name on the hub."""
    field, annotation = cell
    name = f"{mode}-{field}-{annotation}"
    legacy = await kubectl_apply(stage.client_of(MODES[mode]), subject(kind, name, OLD))
    template = subject(kind, name, NEW)
    if annotation != UNSET:
        template = with_metadata(template, annotations={stamps.CONFLICT_RESOLUTION: annotation})
    await kubectl_apply(stage.hub, policy_for(template, MODES[mode], field))
    await kubectl_apply(stage.hub, template)
    return Cell(stage, MODES[mode], legacy)


def is_overwritten(cell: tuple[str, str]) -> bool:
    field, annotation = cell
    return OVERWRITE in (annotation, field if annotation == UNSET else "")


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("Deployment", PUSH),
        ("ConfigMap", PULL),
        ("ClusterRole", PUSH),
        pytest.param("Deployment", PULL, marks=pytest.mark.slow),
        pytest.param("ConfigMap", PUSH, marks=pytest.mark.slow),
        pytest.param("ClusterRole", PULL, marks=pytest.mark.slow),
    ],
)
async def test_policy_and_annotation_decide(stage: Stage, kind: str, mode: str) -> None:
    cells = {cell: await conflict(stage, kind, mode, cell) for cell in CELLS}

    for cell, held in cells.items():
        wanted = is_overwritten(cell)
        assert is_true([await held.applied()], "Applied") is wanted, cell
        await (check_taken_over if wanted else check_left_alone)(held)


async def check_taken_over(held: Cell) -> None:
    live = await held.live()
    assert content_of(live) == NEW
    assert uid_of(live) == uid_of(held.legacy)
    assert labels_of(live)[stamps.MANAGED] == "true"
    assert await held.binding_is_applied()


async def check_left_alone(held: Cell) -> None:
    live, condition = await held.live(), await held.applied()
    assert content_of(live) == OLD
    assert stamps.MANAGED not in labels_of(live)
    assert not await held.binding_is_applied()
    about_work = await held.events_about(held.work_place.name)
    about_template = await held.events_about(name_of(held.legacy))
    for told in (condition["message"], *about_work, *about_template):
        assert f"already exists in the cluster {held.cluster}" in told
        assert "no hub manages it, it was written by kubectl-client-side-apply" in told
        assert "they differ in " in told


@pytest.mark.parametrize("mode", MODES)
async def test_a_conflict_ends_when_its_cause_ends(stage: Stage, mode: str) -> None:
    name = f"{mode}-in-the-way"
    legacy = await kubectl_apply(stage.client_of(MODES[mode]), subject("ConfigMap", name, OLD))
    template = subject("ConfigMap", name, NEW)
    await kubectl_apply(stage.hub, policy_for(template, MODES[mode], UNSET))
    await kubectl_apply(stage.hub, template)
    held = Cell(stage, MODES[mode], legacy)
    assert not is_true([await held.applied()], "Applied")

    await delete(held.member, resource_path_of(legacy))

    async def is_ours() -> bool:
        live = await held.member.find(resource_path_of(legacy))
        return live is not None and content_of(live) == NEW

    await until(is_ours)

    async def is_told() -> bool:
        return is_true([await held.applied()], "Applied")

    await until(is_told)
