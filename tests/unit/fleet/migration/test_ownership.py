"""Whose an object is: the shapes that the tools of the field leave behind, and hostile ones."""

from typing import Any

import pytest

from clusterspace.fleet.migration.ownership import Owner, OwnerKind, owner_of
from clusterspace.kube.objects import Object, with_metadata


def managed(manager: str, operation: str = "Update", **more: Any) -> Object:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "apps/v1",
        "time": "2026-03-01T10:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        **more,
    }


CONTROLLERS_HAND = managed("kube-controller-manager", subresource="status")


def deployment(
    labels: Any = None, annotations: Any = None, *entries: Object, **metadata: Any
) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "5f6f2c1e-0000-4000-8000-000000000001",
            "labels": {"app": "web"} if labels is None else labels,
            "annotations": {} if annotations is None else annotations,
            "managedFields": [*entries, CONTROLLERS_HAND],
            **metadata,
        },
        "spec": {"replicas": 2},
    }


def owned_by(api_version: str, kind: str, name: str, **more: Any) -> list[Object]:
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": "1", **more}]


HELM = deployment(
    {
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/instance": "shop",
        "helm.sh/chart": "web-1.2.3",
    },
    {
        "deployment.kubernetes.io/revision": "3",
        "meta.helm.sh/release-name": "shop",
        "meta.helm.sh/release-namespace": "shop",
    },
    managed("helm"),
)
ARGO_BY_ANNOTATION = deployment(
    {"app.kubernetes.io/managed-by": "Helm"},
    {"argocd.argoproj.io/tracking-id": "storefront:apps/Deployment:shop/web"},
    managed("argocd-controller", "Apply"),
)
ARGO_BY_LABEL = deployment({"argocd.argoproj.io/instance": "storefront"})
ARGO_BY_ITS_HAND = deployment(
    {"app.kubernetes.io/instance": "storefront"},
    {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    managed("argocd-application-controller"),
)
FLUX_KUSTOMIZATION = deployment(
    {
        "kustomize.toolkit.fluxcd.io/name": "shop",
        "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
    },
    None,
    managed("kustomize-controller", "Apply"),
)
FLUX_RELEASE = deployment(
    {
        "app.kubernetes.io/managed-by": "Helm",
        "helm.toolkit.fluxcd.io/name": "shop",
        "helm.toolkit.fluxcd.io/namespace": "shop",
    },
    {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shop"},
    managed("helm-controller"),
)
FLUX_BY_ITS_HAND = deployment(None, None, managed("kustomize-controller", "Apply"))
FLUX_PAUSED = with_metadata(
    FLUX_KUSTOMIZATION, annotations={"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}
)
FLUX_ONLY_CREATES = with_metadata(
    FLUX_KUSTOMIZATION, annotations={"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}
)
KUSTOMIZE_BY_LABEL = deployment(
    {"app.kubernetes.io/managed-by": "kustomize-v5.4.0"},
    {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    managed("kubectl-client-side-apply"),
)
KUSTOMIZE_BY_ORIGIN = deployment(None, {"config.kubernetes.io/origin": "path: web.yaml\n"})
OPERATOR = deployment(
    None,
    None,
    managed("manager"),
    ownerReferences=owned_by(
        "databases.example.com/v1", "Postgres", "orders", controller=True, blockOwnerDeletion=True
    ),
)
OPERATOR_WITHOUT_CONTROLLER = deployment(
    ownerReferences=owned_by("databases.example.com/v1", "Postgres", "orders")
)
OPERATOR_BY_OLM = deployment(
    {
        "olm.owner": "postgres.v1.2.3",
        "olm.owner.kind": "ClusterServiceVersion",
        "olm.owner.namespace": "operators",
        "olm.managed": "true",
    }
)
OPERATOR_BY_NAME = deployment({"app.kubernetes.io/managed-by": "prometheus-operator"})
KARMADA = deployment(
    {
        "karmada.io/managed": "true",
        "work.karmada.io/permanent-id": "8f1e",
        "resourcebinding.karmada.io/permanent-id": "77aa",
        "propagationpolicy.karmada.io/permanent-id": "31c0",
    },
    {
        "work.karmada.io/namespace": "karmada-es-west",
        "work.karmada.io/name": "web-5b8c",
        "resourcetemplate.karmada.io/uid": "0b",
    },
    managed("karmada-controller-manager"),
)
KUBEFLEET = deployment(
    None,
    {"kubernetes-fleet.io/spec-hash": "ab12"},
    managed("work-api-agent", "Apply"),
    ownerReferences=owned_by(
        "placement.kubernetes-fleet.io/v1beta1", "AppliedWork", "crp-work", blockOwnerDeletion=False
    ),
)
REPLICA_SET = {
    **deployment(
        {"app": "web", "pod-template-hash": "5d4c"},
        # As the Deployment controller copies them.
        {
            "argocd.argoproj.io/tracking-id": "storefront:apps/Deployment:shop/web",
            "meta.helm.sh/release-name": "shop",
            "work.karmada.io/name": "web-5b8c",
        },
        name="web-5d4c",
        ownerReferences=owned_by("apps/v1", "Deployment", "web", controller=True),
    ),
    "kind": "ReplicaSet",
}
CLIENT_SIDE = deployment(
    None,
    {"kubectl.kubernetes.io/last-applied-configuration": '{"kind":"Deployment"}'},
    managed("kubectl-client-side-apply"),
)
SERVER_SIDE = deployment(None, None, managed("kubectl", "Apply"))
TERRAFORM = deployment({"app.kubernetes.io/managed-by": "Terraform"})
BY_HAND = deployment(None, None, managed("kubectl-create"))
ROOT_CERTIFICATES = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "kube-root-ca.crt", "namespace": "shop"},
}
DEFAULT_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "view", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
}


@pytest.mark.parametrize(
    ("live", "kind", "name", "is_reconciling", "evidence"),
    [
        (HELM, OwnerKind.HELM, "shop/shop", False, "meta.helm.sh/release-name=shop"),
        (ARGO_BY_ANNOTATION, OwnerKind.ARGO_CD, "storefront", True, "tracking-id=storefront:"),
        (ARGO_BY_LABEL, OwnerKind.ARGO_CD, "storefront", True, "instance=storefront"),
        (ARGO_BY_ITS_HAND, OwnerKind.ARGO_CD, "storefront", True, "argocd-application-controller"),
        (FLUX_KUSTOMIZATION, OwnerKind.FLUX, "Kustomization flux-system/shop", True, "name=shop"),
        (FLUX_RELEASE, OwnerKind.FLUX, "HelmRelease shop/shop", True, "helm.toolkit"),
        (FLUX_BY_ITS_HAND, OwnerKind.FLUX, "Kustomization", True, "manager kustomize-controller"),
        (FLUX_PAUSED, OwnerKind.FLUX, "Kustomization flux-system/shop", False, "disabled"),
        (FLUX_ONLY_CREATES, OwnerKind.FLUX, "Kustomization flux-system/shop", False, "IfNotP"),
        (KUSTOMIZE_BY_LABEL, OwnerKind.KUSTOMIZE, "", False, "managed-by=kustomize-v5.4.0"),
        (KUSTOMIZE_BY_ORIGIN, OwnerKind.KUSTOMIZE, "", False, "config.kubernetes.io/origin"),
        (OPERATOR, OwnerKind.OPERATOR, "Postgres orders", True, "as its controller"),
        (OPERATOR_WITHOUT_CONTROLLER, OwnerKind.OPERATOR, "Postgres orders", True, "has Postgres"),
        (OPERATOR_BY_OLM, OwnerKind.OPERATOR, "ClusterServiceVersion postgres.v1.2.3", True, "olm"),
        (OPERATOR_BY_NAME, OwnerKind.OPERATOR, "prometheus-operator", True, "managed-by"),
        (KARMADA, OwnerKind.OTHER_HUB, "Work karmada-es-west/web-5b8c", True, "permanent-id=8f1e"),
        (KUBEFLEET, OwnerKind.OTHER_HUB, "KubeFleet AppliedWork crp-work", True, "ownerReferences"),
        (REPLICA_SET, OwnerKind.CONTROLLER, "Deployment web", True, "as its controller"),
        (CLIENT_SIDE, OwnerKind.KUBECTL_APPLY, "", False, "last-applied-configuration"),
        (SERVER_SIDE, OwnerKind.SERVER_SIDE_APPLY, "kubectl", False, "managedFields has kubectl"),
        (TERRAFORM, OwnerKind.OTHER_TOOL, "Terraform", False, "managed-by=Terraform"),
        (BY_HAND, OwnerKind.UNMANAGED, "", False, "written by kubectl-create"),
        (ROOT_CERTIFICATES, OwnerKind.CLUSTER, "ConfigMap kube-root-ca.crt", True, "its name"),
        (DEFAULT_ROLE, OwnerKind.CLUSTER, "ClusterRole view", True, "bootstrapping"),
    ],
)
def test_the_marks_of_every_tool_are_known(
    live: Object, kind: OwnerKind, name: str, is_reconciling: bool, evidence: str
) -> None:
    owner = owner_of(live)

    assert (owner.kind, owner.name, owner.is_reconciling) == (kind, name, is_reconciling)
    assert evidence in owner.evidence
    assert owner.text


def test_what_bears_an_id_of_this_hub_is_its_own() -> None:
    assert owner_of(KARMADA, own_ids={"8f1e"}) == Owner(
        OwnerKind.THIS_HUB,
        "karmada-es-west/web-5b8c",
        is_reconciling=False,
        evidence="the label work.karmada.io/permanent-id is an ID that this hub gave",
    )
    # A Work that was made anew has another ID; its binding has not.
    assert owner_of(KARMADA, own_ids={"77aa"}).kind is OwnerKind.THIS_HUB
    assert owner_of(KARMADA, own_ids={"another"}).kind is OwnerKind.OTHER_HUB


def test_a_tracking_id_that_was_copied_from_another_object_says_nothing() -> None:
    copied = {"argocd.argoproj.io/tracking-id": "storefront:apps/Deployment:shop/api"}

    assert owner_of(deployment(None, copied)).kind is OwnerKind.UNMANAGED


def test_of_cluster_wide_objects_argo_cd_tracks_by_the_namespace_of_the_application() -> None:
    tracking = "storefront:rbac.authorization.k8s.io/ClusterRole:shop/reader"
    role: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "reader",
            "annotations": {"argocd.argoproj.io/tracking-id": tracking},
        },
    }

    assert owner_of(role).kind is OwnerKind.ARGO_CD


def test_whoever_would_put_it_back_counts_before_whoever_rendered_it() -> None:
    """One object with the marks of all of them, taken away one by one."""
    live = deployment(
        {
            **KARMADA["metadata"]["labels"],
            **ARGO_BY_LABEL["metadata"]["labels"],
            **FLUX_KUSTOMIZATION["metadata"]["labels"],
            **OPERATOR_BY_OLM["metadata"]["labels"],
            **HELM["metadata"]["labels"],
        },
        {**HELM["metadata"]["annotations"], **CLIENT_SIDE["metadata"]["annotations"]},
        managed("kubectl", "Apply"),
        ownerReferences=OPERATOR["metadata"]["ownerReferences"],
    )
    prefixes = {
        OwnerKind.OTHER_HUB: "karmada.io",
        OwnerKind.ARGO_CD: "argocd.",
        OwnerKind.FLUX: "toolkit.fluxcd.io",
        OwnerKind.OPERATOR: "olm.",
        OwnerKind.HELM: "helm",
    }

    seen = [owner_of(live).kind]
    live = with_metadata(live, ownerReferences=None)
    for prefix in prefixes.values():
        seen.append(owner_of(live).kind)
        kept = {
            part: {
                key: value
                for key, value in live["metadata"][part].items()
                if prefix not in key and prefix not in str(value).lower()
            }
            for part in ("labels", "annotations")
        }
        live = with_metadata(live, **kept)
    seen.append(owner_of(live).kind)
    live = with_metadata(live, managedFields=None)
    seen.append(owner_of(live).kind)

    assert seen == [
        OwnerKind.OPERATOR,
        *prefixes,
        OwnerKind.SERVER_SIDE_APPLY,
        OwnerKind.KUBECTL_APPLY,
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        "metadata",
        {},
        {"labels": ["karmada.io/managed"], "annotations": "x", "managedFields": {}},
        {"labels": {"karmada.io/managed": True, "olm.owner": 7, "olm.managed": None}},
        {"annotations": {"meta.helm.sh/release-name": {"a": 1}}},
        {"annotations": {"argocd.argoproj.io/tracking-id": ":::"}},
        {"managedFields": [None, 7, "x", [], {"manager": 7}, {"manager": ["a"]}]},
        {"managedFields": [{"manager": "x", "operation": ["Apply"]}]},
        {"ownerReferences": {"kind": "Deployment"}},
        {"ownerReferences": [None, {}, {"kind": 7, "name": 8}, {"kind": "X", "name": []}]},
        {"ownerReferences": [{"kind": "Job", "name": "x", "apiVersion": 7, "controller": "yes"}]},
    ],
)
def test_values_of_a_wrong_type_are_no_marks(metadata: Any) -> None:
    live: Object = {"kind": ["Pod"], "apiVersion": 1, "metadata": metadata}

    assert owner_of(live).kind is OwnerKind.UNMANAGED


def test_what_an_object_says_is_cut_and_safe_to_print() -> None:
    hostile = "\x1b[2Jshop\n" + "x" * 100_000
    live = deployment(
        {f"label-{number}": "x" for number in range(50_000)},
        {"meta.helm.sh/release-name": hostile},
        *(managed(f"manager-{number}") for number in range(5_000)),
    )

    owner = owner_of(live)

    assert owner.kind is OwnerKind.HELM
    assert owner.name.isprintable()
    assert owner.evidence.isprintable()
    assert len(owner.name) + len(owner.evidence) < 1_000
