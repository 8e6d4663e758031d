"""Every row of the KubeFleet page that says refused: a write is, and names the field."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import placement, placement_site, resource_placement

from clusterspace.apis.fleet_overrides import CLUSTER_OVERRIDES, RESOURCE_OVERRIDES
from clusterspace.apis.fleet_placements import API_VERSION, CLUSTER_WIDE, NAMESPACED
from clusterspace.client.requests import resource_path_of
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, with_value

PAGE = Path(__file__).parents[2] / "docs" / "kubefleet-compatibility.md"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SORTER = {"name": "kubernetes-fleet.io/node-count", "sortOrder": "Ascending"}
SELECTOR = {
    "matchExpressions": [
        {"name": "kubernetes-fleet.io/node-count", "operator": "Gt", "values": ["1"]}
    ]
}
TERMS = "spec.policy.overrideRules.clusterSelector.clusterSelectorTerms"
AFFINITY = "spec.policy.affinity.clusterAffinity"


def refused_rows() -> set[tuple[str, str]]:
    """Return kind and field of every row that says refused."""
    found: set[tuple[str, str]] = set()
    kinds: list[str] = []
    for line in PAGE.read_text().partition("## Every field\n")[2].splitlines():
        if line.startswith("### "):
            kinds = line.removeprefix("### ").split(", ")
        row = re.fullmatch(r"\| `([^`]+)` \| (.*) \|", line)
        if row is not None and "refused" in row[2]:
            found |= {(kind, row[1]) for kind in kinds}
    return found


def picking(affinity: Object) -> Object:
    chosen = {"numberOfClusters": 1, "affinity": {"clusterAffinity": affinity}}
    return {"policy": {"placementType": "PickN", **chosen}}


PLACEMENT_ASKS: dict[str, Object] = {
    f"{AFFINITY}.{REQUIRED}.clusterSelectorTerms.propertySorter": picking(
        {REQUIRED: {"clusterSelectorTerms": [{"propertySorter": SORTER}]}}
    ),
    f"{AFFINITY}.{PREFERRED}.preference.propertySelector": picking(
        {PREFERRED: [{"weight": 1, "preference": {"propertySelector": SELECTOR}}]}
    ),
    "spec.strategy.applyStrategy.type": {
        "strategy": {"applyStrategy": {"type": "ServerSideApply"}}
    },
    "spec.statusReportingScope": {"statusReportingScope": "NamespaceAccessible"},
}


def override(kind: str, term: Object, **selector: Any) -> Object:
    chosen = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "a", **selector}
    rule = {
        "clusterSelector": {"clusterSelectorTerms": [term]},
        "jsonPatchOverrides": [{"op": "add", "path": "/data/v", "value": "1"}],
    }
    is_wide = kind == "ClusterResourceOverride"
    field = "clusterResourceSelectors" if is_wide else "resourceSelectors"
    metadata = {"name": "much"} if is_wide else {"name": "much", "namespace": "app"}
    spec = {field: [chosen], "policy": {"overrideRules": [rule]}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def asking(kind: str, field: str) -> Object:
    """Return an object that asks for what a row says is refused."""
    if kind in ("ClusterResourcePlacement", "ResourcePlacement"):
        made = placement("much") if kind == CLUSTER_WIDE.kind else resource_placement("much")
        return {**made, "spec": {**made["spec"], **PLACEMENT_ASKS[field]}}
    if field == f"{TERMS}.propertySorter":
        return override(kind, {"propertySorter": SORTER})
    if field == f"{TERMS}.propertySelector":
        return override(kind, {"propertySelector": SELECTOR})
    assert field == "spec.clusterResourceSelectors.labelSelector"
    return override(kind, {"labelSelector": {}}, labelSelector={"matchLabels": {"a": "b"}})


RESOURCES = {
    CLUSTER_WIDE.kind: CLUSTER_WIDE.placements,
    NAMESPACED.kind: NAMESPACED.placements,
    "ClusterResourceOverride": CLUSTER_OVERRIDES,
    "ResourceOverride": RESOURCE_OVERRIDES,
}


async def test_every_row_that_says_refused_is(tmp_path: Path) -> None:
    rows = refused_rows()
    assert len(rows) >= len(PLACEMENT_ASKS)
    async with placement_site(tmp_path) as site:
        await site.app()
        for kind, field in sorted(rows):
            made = asking(kind, field)
            with pytest.raises(Invalid) as refused:
                await site.put(RESOURCES[kind], made)
            assert field.rpartition(".")[2] in refused.value.message, (kind, field)


async def test_what_acts_is_stored_beside_what_is_refused(tmp_path: Path) -> None:
    async with placement_site(tmp_path) as site:
        await site.app()
        made = placement("much")
        asked = picking({REQUIRED: {"clusterSelectorTerms": [{"propertySelector": SELECTOR}]}})
        stored = await site.put(
            CLUSTER_WIDE.placements, {**made, "spec": {**made["spec"], **asked}}
        )
        strategy = {"whenToApply": "IfNotDrifted", "comparisonOption": "FullComparison"}
        path = resource_path_of(CLUSTER_WIDE.placements, stored)
        kept = await site.change(
            path, lambda held: with_value(held, strategy, "spec", "strategy", "applyStrategy")
        )
        assert kept["spec"]["strategy"]["applyStrategy"]["whenToApply"] == "IfNotDrifted"
