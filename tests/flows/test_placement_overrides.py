"""Overrides of placements: what each cluster has of an object, rolled out by the strategy."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PlacementSite,
    cluster_role,
    namespace_selector,
    of_cluster,
    placement,
    placement_site,
    role_selector,
    running,
)

from clusterspace.apis.fleet_overrides import (
    CLUSTER_OVERRIDES,
    CLUSTER_SNAPSHOTS,
    RESOURCE_OVERRIDES,
    RESOURCE_SNAPSHOTS,
)
from clusterspace.apis.fleet_placements import API_VERSION, FLEET_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Invalid
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, with_value
from clusterspace.testing.builders import NAMESPACES
from clusterspace.testing.steps import until, until_equal

AT_ONCE = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}
SETTINGS = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
EVERYWHERE: Object = {"clusterSelectorTerms": []}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path) as site:
        await site.join("east", labels={"region": "east"})
        await site.join("west", labels={"region": "west"})
        async with running(site):
            yield site


def in_region(region: str) -> Object:
    return {"clusterSelectorTerms": [{"labelSelector": {"matchLabels": {"region": region}}}]}


def patch(path: str, value: Any = None, op: str = "replace") -> Object:
    return {"op": op, "path": path, **({} if op == "remove" else {"value": value})}


def rule(*patches: Object, where: Object | None = EVERYWHERE, **more: Any) -> Object:
    changes = {"jsonPatchOverrides": list(patches)} if patches else {}
    return {**({} if where is None else {"clusterSelector": where}), **changes, **more}


def resource_override(*rules: Object, name: str = "ro", **spec: Any) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceOverride",
        "metadata": {"name": name, "namespace": "app"},
        "spec": {
            "resourceSelectors": [SETTINGS],
            "policy": {"overrideRules": list(rules)},
            **spec,
        },
    }


def cluster_override(selector: Object, *rules: Object, name: str = "cro", **spec: Any) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterResourceOverride",
        "metadata": {"name": name},
        "spec": {
            "clusterResourceSelectors": [selector],
            "policy": {"overrideRules": list(rules)},
            **spec,
        },
    }


async def place(site: PlacementSite, **strategy: Any) -> None:
    await site.app("settings")
    await site.place(placement(rollingUpdate={**AT_ONCE, **strategy}))
    for name in ("east", "west"):
        await site.until_data(name, "settings", {"v": "1"})


async def overridden(site: PlacementSite, cluster: str) -> tuple[str, str, str]:
    """Return status, reason and message of the Overridden condition of a cluster."""
    conditions = of_cluster(await site.status(), cluster).get("conditions")
    found = find_condition(conditions, "Overridden") or {}
    return str(found.get("status")), str(found.get("reason")), str(found.get("message"))


async def test_every_cluster_has_an_object_as_the_rules_for_it_say(site: PlacementSite) -> None:
    await place(site)
    await site.put(
        RESOURCE_OVERRIDES,
        resource_override(
            rule(patch("/data/v", "on ${MEMBER-CLUSTER-NAME}")),
            rule(
                patch("/data/region", "${MEMBER-CLUSTER-LABEL-KEY-region}!", "add"),
                where=in_region("west"),
            ),
            rule(patch("/data/never", "x", "add"), where=None),
        ),
    )

    await site.until_data("east", "settings", {"v": "on east"})
    await site.until_data("west", "settings", {"v": "on west", "region": "west!"})
    await site.until_settled()

    for name in ("east", "west"):
        told = of_cluster(await site.status(), name)
        assert told["applicableResourceOverrides"] == [{"name": "ro-0", "namespace": "app"}]
        assert (await overridden(site, name))[:2] == ("True", "OverriddenSucceeded")
    assert await site.condition("Overridden") == ("True", "OverriddenSucceeded")


async def test_a_changed_override_is_a_new_snapshot_and_a_deleted_one_is_rolled_back(
    site: PlacementSite,
) -> None:
    await place(site)
    await site.put(RESOURCE_OVERRIDES, resource_override(rule(patch("/data/v", "2"))))
    await site.until_data("west", "settings", {"v": "2"})

    path = ResourcePath(RESOURCE_OVERRIDES, "app", "ro")
    changed = [rule(patch("/data/v", "3"))]
    await site.change(
        path, lambda held: with_value(held, changed, "spec", "policy", "overrideRules")
    )
    await site.until_data("west", "settings", {"v": "3"})
    listed = await site.hub.list_objects(ResourcePath(RESOURCE_SNAPSHOTS, "app"))
    latest = {name_of(e): labels_of(e)["kubernetes-fleet.io/is-latest-snapshot"] for e in listed}
    assert latest == {"ro-0": "false", "ro-1": "true"}

    await site.delete(path)
    await site.until_data("west", "settings", {"v": "1"})
    await site.until_data("east", "settings", {"v": "1"})

    async def snapshots() -> list[str]:
        return [name_of(e) for e in await site.hub.list_objects(ResourcePath(RESOURCE_SNAPSHOTS))]

    await until_equal(snapshots, [])
    await site.until_settled()
    assert (await overridden(site, "west"))[:2] == ("True", "NoOverrideSpecified")
    assert "applicableResourceOverrides" not in of_cluster(await site.status(), "west")


async def test_an_override_reaches_one_cluster_after_the_other(site: PlacementSite) -> None:
    await place(site, maxUnavailable=1, maxSurge=0)
    # The first cluster to get it cannot have it, so the second keeps what it has.
    await site.put(RESOURCE_OVERRIDES, resource_override(rule(patch("/data/none/at/all", "2"))))

    async def failed() -> list[str]:
        names = ("east", "west")
        return [n for n in names if (await overridden(site, n))[1] == "OverriddenFailed"]

    await until(failed, explain=site.status)
    assert len(await failed()) == 1
    (broken,) = await failed()
    assert "ResourceOverrideSnapshot app/ro-0" in (await overridden(site, broken))[2]
    assert await site.condition("RolloutStarted") == ("False", "RolloutNotStartedYet")
    assert "ResourceOverrideSnapshot app/ro-0" in await site.message("RolloutStarted")
    bindings = await site.hub.list_objects(ResourcePath(FLEET_BINDINGS))
    named = {
        e["spec"]["targetCluster"]: find_at(e, "spec", "resourceOverrideSnapshots")
        for e in bindings
    }
    assert named.pop(broken) == [{"name": "ro-0", "namespace": "app"}]
    assert list(named.values()) == [None]
    for name in ("east", "west"):
        assert await site.data(name, "settings") == {"v": "1"}

    mended = [rule(patch("/data/v", "2"))]
    await site.change(
        ResourcePath(RESOURCE_OVERRIDES, "app", "ro"),
        lambda held: with_value(held, mended, "spec", "policy", "overrideRules"),
    )
    for name in ("east", "west"):
        await site.until_data(name, "settings", {"v": "2"})


async def test_a_rule_of_type_delete_keeps_an_object_from_a_cluster(site: PlacementSite) -> None:
    await place(site)
    gone = rule(where=in_region("west"), overrideType="Delete")
    await site.put(RESOURCE_OVERRIDES, resource_override(gone))

    await site.until_data("west", "settings", None)
    assert await site.data("east", "settings") == {"v": "1"}
    await site.until_settled()

    await site.delete(ResourcePath(RESOURCE_OVERRIDES, "app", "ro"))
    await site.until_data("west", "settings", {"v": "1"})


async def test_a_namespace_is_overridden_with_all_in_it_and_the_narrower_override_wins(
    site: PlacementSite,
) -> None:
    await place(site)
    marked = rule(patch("/metadata/labels", {"team": "wide"}, "add"), overrideType="JSONPatch")
    await site.put(CLUSTER_OVERRIDES, cluster_override(namespace_selector("app"), marked))
    await site.put(
        RESOURCE_OVERRIDES, resource_override(rule(patch("/metadata/labels/team", "narrow")))
    )

    async def teams() -> dict[str, str | None]:
        member = site.members["west"]
        placed = await member.get(ResourcePath(CONFIG_MAPS, "app", "settings"))
        home = await member.get(ResourcePath(NAMESPACES, "", "app"))
        return {"settings": labels_of(placed).get("team"), "app": labels_of(home).get("team")}

    await until_equal(teams, {"settings": "narrow", "app": "wide"})
    told = of_cluster(await site.status(), "west")
    assert told["applicableClusterResourceOverrides"] == ["cro-0"]


async def test_an_override_for_another_placement_changes_nothing_here(site: PlacementSite) -> None:
    await site.app("settings")
    other = resource_override(rule(patch("/data/v", "2")), placement={"name": "other"})
    await site.put(RESOURCE_OVERRIDES, other)
    await site.place(placement(rollingUpdate=AT_ONCE))
    await site.until_settled()

    assert await site.data("west", "settings") == {"v": "1"}
    assert "applicableResourceOverrides" not in of_cluster(await site.status(), "west")


async def test_a_snapshot_by_hand_cannot_make_another_object_of_one(site: PlacementSite) -> None:
    await site.put(CLUSTER_ROLES, cluster_role("reader"))
    await place(site)
    grants = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    for name, selector, patches in (
        ("granting", role_selector(name="reader"), [patch("/rules", grants)]),
        ("renaming", namespace_selector("app"), [patch("/metadata/name", "kube-system")]),
    ):
        spec = cluster_override(selector, rule(*patches))["spec"]
        await site.put(
            CLUSTER_SNAPSHOTS,
            {
                "apiVersion": API_VERSION,
                "kind": "ClusterResourceOverrideSnapshot",
                "metadata": {
                    "name": f"{name}-0",
                    "labels": {
                        "kubernetes-fleet.io/parent-resource-override": name,
                        "kubernetes-fleet.io/override-index": "0",
                        "kubernetes-fleet.io/is-latest-snapshot": "true",
                    },
                },
                "spec": {"overrideSpec": spec, "overrideHash": "eA=="},
            },
        )
    await site.place(placement("roles", role_selector(name="reader"), rollingUpdate=AT_ONCE))

    async def is_there() -> bool:
        return (
            await site.members["west"].find(ResourcePath(CLUSTER_ROLES, "", "reader")) is not None
        )

    await until(is_there)
    found = await site.members["west"].get(ResourcePath(CLUSTER_ROLES, "", "reader"))
    assert not found["rules"]
    assert await site.data("west", "settings") == {"v": "1"}


@pytest.mark.parametrize(
    ("override", "field"),
    [
        (resource_override(rule(patch("/metadata/name", "x"))), "path"),
        (resource_override(rule(patch("/kind", "Secret"))), "path"),
        (resource_override(rule(patch("/status/x", "1"))), "path"),
        (resource_override(rule(patch("/metadata/labels/karmada.io~1managed", "1"))), "path"),
        (resource_override(rule(patch("data", "1"))), "path"),
        (resource_override(rule()), "jsonPatchOverrides"),
        (
            resource_override(rule(patch("/data/v", "1"), overrideType="Delete")),
            "jsonPatchOverrides",
        ),
        (
            cluster_override(role_selector(name="reader"), rule(patch("/aggregationRule", {}))),
            "path",
        ),
        (
            cluster_override(role_selector(labelSelector={}), rule(patch("/x", "1"))),
            "clusterResourceSelectors[0]",
        ),
        (
            resource_override(
                rule(
                    patch("/data/v", "1"),
                    where={
                        "clusterSelectorTerms": [
                            {"propertySorter": {"name": "a", "sortOrder": "Ascending"}}
                        ]
                    },
                )
            ),
            "clusterSelectorTerms[0]",
        ),
    ],
)
async def test_what_no_override_may_say_is_refused(
    tmp_path: Path, override: Object, field: str
) -> None:
    async with placement_site(tmp_path) as site:
        await site.app("settings")
        resource = RESOURCE_OVERRIDES if "namespace" in override["metadata"] else CLUSTER_OVERRIDES
        with pytest.raises(Invalid) as refused:
            await site.put(resource, override)
        assert field in refused.value.message


async def test_an_object_has_one_override_of_each_kind(tmp_path: Path) -> None:
    async with placement_site(tmp_path) as site:
        await site.app("settings")
        await site.put(RESOURCE_OVERRIDES, resource_override(rule(patch("/data/v", "1"))))
        second = resource_override(rule(patch("/data/v", "2")), name="second")
        with pytest.raises(Invalid, match="ro selects it already"):
            await site.put(RESOURCE_OVERRIDES, second)
        path = ResourcePath(RESOURCE_OVERRIDES, "app", "ro")
        with pytest.raises(Invalid):
            await site.change(path, lambda e: with_value(e, {"name": "crp"}, "spec", "placement"))
