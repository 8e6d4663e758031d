"""What cannot be done is said where people look, and does not hold up the rest."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.flows.stages import KINDS, MIXED, SIM, Stage, edit, kubectl_apply, staged

from clusterspace.apis.clusters import WORKS
from clusterspace.apis.policies import OVERRIDE_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import Invalid
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, config_map, deployment
from clusterspace.testing.steps import delete, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
QUOTAS = GroupVersionResource("", "v1", "resourcequotas")
BLOBS = GroupVersionResource("example.com", "v1", "blobs")
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(kind: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(kind, MIXED, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


def policy_for(manifest: Object, *clusters: str, resolution: str = "Abort") -> Object:
    selector = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name_of(manifest), "namespace": "default"},
        "spec": {
            "resourceSelectors": [{**selector, "name": name_of(manifest)}],
            "placement": {"clusterAffinity": {"clusterNames": list(clusters)}},
            "conflictResolution": resolution,
        },
    }


async def condition(stage: Stage, manifest: Object, kind: str, status: str) -> str:
    """Wait for a condition of a binding; return its message."""
    name = f"{name_of(manifest)}-{manifest['kind'].lower()}"

    async def said() -> Object | None:
        binding = await stage.hub.find(ResourcePath(RESOURCE_BINDINGS, "default", name)) or {}
        found = find_condition(find_at(binding, "status", "conditions"), kind) or {}
        return found if found.get("status") == status else None

    return str((await until(said))["message"])


async def told(stage: Stage, name: str, reason: str) -> str:
    """Wait for a warning about a template; return what it says."""

    async def found() -> str | None:
        events = await stage.hub.list_objects(ResourcePath(EVENTS, "default"))
        about = [each for each in events if each["involvedObject"]["name"] == name]
        return next((each["message"] for each in about if each["reason"] == reason), None)

    return await until(found)


async def applied_message(stage: Stage, manifest: Object, cluster: str) -> str:
    """Wait until a Work says that it is not applied; return why."""

    async def said() -> str | None:
        works = await stage.hub.list_objects(ResourcePath(WORKS, f"karmada-es-{cluster}"))
        ours = (each for each in works if name_of(each).startswith(f"{name_of(manifest)}-"))
        found = find_condition(find_at(next(ours, {}), "status", "conditions"), "Applied") or {}
        return found["message"] if found.get("status") == "False" else None

    return await until(said)


async def check_work_goes_on(stage: Stage, name: str) -> None:
    """Place something else on both members."""
    other = config_map(f"beside-{name}", {"a": "1"})
    await kubectl_apply(stage.hub, policy_for(other, "member1", "member2"))
    await kubectl_apply(stage.hub, other)
    for member in stage.members:
        await until_data(stage, member, name_of(other), {"a": "1"})


async def until_data(stage: Stage, member: str, name: str, data: Object) -> None:
    async def seen() -> Any:
        held = await stage.client_of(member).find(ResourcePath(CONFIG_MAPS, "default", name)) or {}
        return held.get("data")

    await until_equal(seen, data)


async def test_clusters_that_do_not_exist_are_passed_over(stage: Stage) -> None:
    here, nowhere = config_map("here", {"a": "1"}), config_map("nowhere")
    await kubectl_apply(stage.hub, policy_for(here, "absent", "member1"))
    await kubectl_apply(stage.hub, policy_for(nowhere, "absent"))
    for each in (here, nowhere):
        await kubectl_apply(stage.hub, each)

    await until_data(stage, "member1", "here", {"a": "1"})
    assert "scheduled successfully" in await condition(stage, here, "Scheduled", "True")
    why = await condition(stage, nowhere, "Scheduled", "False")
    assert "2 cluster(s) did not match the placement cluster affinity" in why
    assert await told(stage, "nowhere", "ScheduleBindingFailed") == why
    await check_work_goes_on(stage, "absent")


async def test_an_override_of_what_is_not_there_is_named_and_ends_when_it_is_mended(
    stage: Stage,
) -> None:
    template = config_map("overridden", {"a": "1"})
    rule = {
        "targetCluster": {"clusterNames": ["member1"]},
        "overriders": {
            "plaintext": [{"path": "/data/absent/deep", "operator": "replace", "value": "2"}]
        },
    }
    override = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"name": "overridden", "namespace": "default"},
        "spec": {
            "resourceSelectors": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": name_of(template)}
            ],
            "overrideRules": [rule],
        },
    }
    await kubectl_apply(stage.hub, override)
    await kubectl_apply(stage.hub, policy_for(template, "member1", "member2"))
    await kubectl_apply(stage.hub, template)

    await until_data(stage, "member2", "overridden", {"a": "1"})
    why = await condition(stage, template, "WorksWritten", "False")
    assert "member1" in why
    assert "/data/absent" in why
    assert "/data/absent" in await told(stage, "overridden", "ApplyOverridePolicyFailed")
    await check_work_goes_on(stage, "override")
    mended = [{"path": "/data/a", "operator": "replace", "value": "2"}]
    path = ("spec", "overrideRules")
    await edit(
        stage.hub,
        ResourcePath(OVERRIDE_POLICIES, "default", "overridden"),
        lambda held: with_value(held, [{**rule, "overriders": {"plaintext": mended}}], *path),
    )
    await until_data(stage, "member1", "overridden", {"a": "2"})


@pytest.mark.parametrize("member", ["member1", "member2"], ids=["push", "pull"])
async def test_what_a_member_refuses_is_said_in_its_words(stage: Stage, member: str) -> None:
    """A selector cannot change: whoever is told to overwrite this one is refused."""
    name = f"refused-{member}"
    legacy = deployment(name)
    labels = {"app": name, "tier": "old"}
    legacy["spec"]["selector"] = {"matchLabels": labels}
    legacy["spec"]["template"]["metadata"] = {"labels": labels}
    await kubectl_apply(stage.client_of(member), legacy)

    await kubectl_apply(stage.hub, policy_for(legacy, member, resolution="Overwrite"))
    await kubectl_apply(stage.hub, deployment(name))

    why = await applied_message(stage, legacy, member)
    assert f"resource(kind=Deployment, default/{name}) was refused" in why
    assert "field is immutable" in why
    assert "field is immutable" in await told(stage, name, "SyncFailed")
    await condition(stage, legacy, "FullyApplied", "False")
    await check_work_goes_on(stage, name)


async def test_a_quota_on_a_real_member_is_named_and_ends_when_there_is_room(
    stage: Stage, kind: str
) -> None:
    if kind == SIM:
        pytest.skip("quotas are stored and not enforced on simulated members")
    member, template = stage.client_of("member1"), config_map("crowded", {"a": "1"})
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": {"configmaps": "0"}},
    }
    place = ResourcePath(QUOTAS, "default", "few")
    await member.create(place.collection, quota)
    counted = {"hard": {"configmaps": "0"}, "used": {"configmaps": "0"}}
    await edit(member, place.with_subresource("status"), lambda held: {**held, "status": counted})
    await kubectl_apply(stage.hub, policy_for(template, "member1"))
    await kubectl_apply(stage.hub, template)

    assert "exceeded quota: few" in await applied_message(stage, template, "member1")
    assert "exceeded quota: few" in await told(stage, "crowded", "SyncFailed")
    await delete(member, place)
    await until_data(stage, "member1", "crowded", {"a": "1"})


async def test_a_kind_that_a_member_does_not_know_goes_nowhere(stage: Stage) -> None:
    blob = {
        "apiVersion": "example.com/v1",
        "kind": "Blob",
        "metadata": {"name": "unknown", "namespace": "default"},
        "spec": {"content": "x"},
    }
    await define_blobs(stage.hub)
    await kubectl_apply(stage.hub, policy_for(blob, "member1"))
    await stage.hub.create(ResourcePath(BLOBS, "default"), blob)

    why = await condition(stage, blob, "Scheduled", "False")
    assert "did not serve Blob of example.com/v1" in why
    assert await told(stage, "unknown", "ScheduleBindingFailed") == why
    await check_work_goes_on(stage, "unknown")


async def define_blobs(hub: ClusterClient) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "blobs.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Blob", "plural": "blobs"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    place = ResourcePath(DEFINITIONS, "", "blobs.example.com")
    await hub.create(place.collection, definition)

    async def is_established() -> bool:
        found = await hub.get(place)
        return bool(find_condition(find_at(found, "status", "conditions"), "Established"))

    await until(is_established)


@pytest.mark.parametrize("member", ["member1", "member2"], ids=["push", "pull"])
async def test_objects_of_two_mebibytes_are_placed_or_refused_in_words(
    stage: Stage, kind: str, member: str
) -> None:
    name = f"huge-{member}"
    huge = config_map(name, {"a": "x" * 2 * MEBIBYTE})
    with pytest.raises(Invalid, match="Too long"):
        await stage.hub.create(ResourcePath(CONFIG_MAPS, "default"), huge)
    template = deployment(name)
    template["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * 2 * MEBIBYTE]
    await kubectl_apply(stage.hub, policy_for(template, member))
    await stage.hub.create(ResourcePath(DEPLOYMENTS, "default"), template)

    if kind == SIM:
        await condition(stage, template, "FullyApplied", "True")
        held = await stage.client_of(member).get(ResourcePath(DEPLOYMENTS, "default", name))
        assert held["spec"]["template"]["spec"]["containers"][0]["args"] == ["x" * 2 * MEBIBYTE]
    else:
        # What etcd takes ends at one and a half.
        why = await applied_message(stage, template, member)
        assert "was refused" in why
        assert "larger than max" in why
        assert len(why) < 1000
        await condition(stage, template, "FullyApplied", "False")
    await check_work_goes_on(stage, name)
