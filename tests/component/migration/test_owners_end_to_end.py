"""Whose an object is, from the marks that tools leave to what a migration does about it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.migration.living import (
    SHOP,
    WIDGETS,
    Site,
    apply_plan,
    living_cluster,
    plan_of,
)

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import WriteOptions
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.migration.ownership import OwnerKind
from clusterspace.fleet.migration.plan import Allow, MigrationPlan, PlanItem
from clusterspace.fleet.migration.progress import State
from clusterspace.kube.objects import uid_of
from clusterspace.testing.builders import CONFIG_MAPS, config_map

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True)
class Made:
    """A ConfigMap as a tool makes it, and what becomes of it."""

    name: str
    kind: OwnerKind
    is_taken: bool
    manager: str
    is_apply: bool = False
    labels: dict[str, str] = field(default_factory=dict[str, str])
    annotations: dict[str, str] = field(default_factory=dict[str, str])
    is_owned: bool = False
    """By the Widget of the shop, without being its controller."""


TABLE = (
    Made(
        "helm",
        OwnerKind.HELM,
        True,
        "helm",
        labels={"app.kubernetes.io/managed-by": "Helm"},
        annotations={
            "meta.helm.sh/release-name": "shop",
            "meta.helm.sh/release-namespace": SHOP,
        },
    ),
    Made(
        "argo",
        OwnerKind.ARGO_CD,
        False,
        "argocd-controller",
        is_apply=True,
        annotations={"argocd.argoproj.io/tracking-id": f"store:/ConfigMap:{SHOP}/argo"},
    ),
    Made(
        "flux",
        OwnerKind.FLUX,
        False,
        "kustomize-controller",
        is_apply=True,
        labels={
            "kustomize.toolkit.fluxcd.io/name": "shop",
            "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
        },
    ),
    Made(
        "flux-paused",
        OwnerKind.FLUX,
        True,
        "kustomize-controller",
        is_apply=True,
        labels={"kustomize.toolkit.fluxcd.io/name": "shop"},
        annotations={"kustomize.toolkit.fluxcd.io/reconcile": "disabled"},
    ),
    Made(
        "kustomize",
        OwnerKind.KUSTOMIZE,
        True,
        "kubectl-client-side-apply",
        labels={"app.kubernetes.io/managed-by": "kustomize-v5.4.0"},
        annotations={LAST_APPLIED: "{}"},
    ),
    Made("operator", OwnerKind.OPERATOR, False, "manager", is_owned=True),
    Made(
        "client-side",
        OwnerKind.KUBECTL_APPLY,
        True,
        "kubectl-client-side-apply",
        annotations={LAST_APPLIED: "{}"},
    ),
    Made("server-side", OwnerKind.SERVER_SIDE_APPLY, True, "kubectl", is_apply=True),
    Made("by-hand", OwnerKind.UNMANAGED, True, "kubectl-create"),
    Made(
        "argo-by-label",
        OwnerKind.ARGO_CD,
        False,
        "kubectl-create",
        labels={"argocd.argoproj.io/instance": "store"},
    ),
    Made("argo-by-its-hand", OwnerKind.ARGO_CD, False, "argocd-application-controller"),
    Made("flux-release", OwnerKind.FLUX, False, "helm-controller"),
    Made(
        "lifecycle-manager",
        OwnerKind.OPERATOR,
        False,
        "olm",
        labels={"olm.owner": "postgres.v1.2.3", "olm.managed": "true"},
    ),
    Made(
        "operator-by-label",
        OwnerKind.OPERATOR,
        False,
        "manager",
        labels={"app.kubernetes.io/managed-by": "prometheus-operator"},
    ),
    Made("operator-by-its-hand", OwnerKind.OPERATOR, False, "postgres-operator", is_apply=True),
    Made(
        "terraform",
        OwnerKind.OTHER_TOOL,
        True,
        "Terraform",
        labels={"app.kubernetes.io/managed-by": "Terraform"},
    ),
    Made("kubefleet", OwnerKind.OTHER_HUB, False, "work-api-agent", is_apply=True),
    Made(
        "another-hub",
        OwnerKind.OTHER_HUB,
        False,
        "karmada-controller-manager",
        labels={"karmada.io/managed": "true", "work.karmada.io/permanent-id": "0b5e"},
        annotations={
            "work.karmada.io/namespace": "karmada-es-west",
            "work.karmada.io/name": "another-hub-7d9f",
        },
    ),
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path) as site:
        widget = await site.member.get(ResourcePath(WIDGETS, SHOP, "gear"))
        for each in TABLE:
            metadata: dict[str, Any] = {"labels": each.labels, "annotations": each.annotations}
            if each.is_owned:
                reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "gear"}
                metadata["ownerReferences"] = [{**reference, "uid": uid_of(widget)}]
            body = config_map(each.name, {"made": "here"}, namespace=SHOP, **metadata)
            options = WriteOptions(field_manager=each.manager, force=each.is_apply)
            place = ResourcePath(CONFIG_MAPS, SHOP, each.name)
            if each.is_apply:
                await site.member.apply(place, body, options)
            else:
                await site.member.create(place.collection, body, options)
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "gear"}
        ruling = {**reference, "uid": uid_of(widget), "controller": True}
        body = config_map("ruled", namespace=SHOP, ownerReferences=[ruling])
        await site.member.create(ResourcePath(CONFIG_MAPS, SHOP), body)
        yield site


def item_of(plan: MigrationPlan, name: str) -> PlanItem:
    return next(each for each in plan.spec.items if (each.kind, each.name) == ("ConfigMap", name))


async def test_each_owner_is_known_and_treated_as_the_docs_say(site: Site) -> None:
    plan = await plan_of(site)

    for made in TABLE:
        item = item_of(plan, made.name)
        kind = OwnerKind(item.owner.kind) if item.owner is not None else OwnerKind.UNMANAGED
        assert (kind, item.take) == (made.kind, made.is_taken), item

    # What a controller made is left to it, and so is what every cluster makes for itself.
    left = {each.reason: each.count for each in plan.spec.left if each.resource == "configmaps"}
    assert left["a Widget made it and looks after it"] == 1
    assert left["every cluster makes it for itself"] >= 1  # kube-root-ca.crt
    for each in plan.spec.items:
        if each.owner is not None and each.owner.is_reconciling:
            assert "`allow: [Owner]` takes it all the same" in each.reason, each

    # Nobody but whom the plan names loses an object to the hub, and whom it names does.
    argo = item_of(plan, "argo")
    allowed = msgspec.structs.replace(argo, take=True, allow=(Allow.OWNER,))
    items = tuple(allowed if each == argo else each for each in plan.spec.items)
    edited = msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, items=items))
    counts = await apply_plan(site, edited)

    assert counts[State.TAKEN] == edited.takes, counts
    for made in TABLE:
        if made.kind is OwnerKind.OTHER_HUB:
            continue  # it bears the mark of its own hub all the time
        found = await site.member.get(ResourcePath(CONFIG_MAPS, SHOP, made.name))
        assert is_managed(found) == (made.is_taken or made.name == "argo"), made.name
