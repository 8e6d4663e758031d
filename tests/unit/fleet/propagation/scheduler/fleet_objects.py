"""Clusters and bindings for tests of the scheduler."""

from collections.abc import Mapping
from typing import Any

from clusterspace.apis import stamps
from clusterspace.fleet.propagation.scheduler.decisions import Decision, plan_for
from clusterspace.fleet.propagation.scheduler.demands import applied_text
from clusterspace.fleet.propagation.scheduler.filters import Candidate, candidate_of
from clusterspace.kube.objects import Object

DIVIDED: Object = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}
DYNAMIC: Object = {**DIVIDED, "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
AGGREGATED: Object = {**DIVIDED, "replicaDivisionPreference": "Aggregated"}
CORDON: Object = {"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}


def cluster(
    name: str, *, pods: int = 100, labels: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    """Return a Cluster that is well and serves Deployments and ConfigMaps."""
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"syncMode": "Push", **spec},
        "status": {
            "apiEnablements": [
                {
                    "groupVersion": "apps/v1",
                    "resources": [{"name": "deployments", "kind": "Deployment"}],
                },
                {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]},
            ],
            "resourceSummary": {"allocatable": {"pods": str(pods), "cpu": "64"}},
        },
    }


def fleet(*clusters: Object) -> dict[str, Candidate]:
    """Return the clusters as the scheduler knows them."""
    return {each["metadata"]["name"]: candidate_of(each) for each in clusters}


def binding(
    placement: Object,
    *,
    replicas: int = 0,
    placed: Mapping[str, int] | None = None,
    applied: Object | None = None,
    **spec: Any,
) -> Object:
    """Return the binding of a Deployment with replicas, or of a ConfigMap without.

    `placed` is where it is, by the placement `applied`, or by its own when not told.
    """
    kind = ("apps/v1", "Deployment") if replicas else ("v1", "ConfigMap")
    metadata: Object = {
        "name": "web-deployment",
        "namespace": "default",
        "generation": 3,
        "labels": {stamps.POLICY_ID: "some-policy"},
    }
    if placed is not None:
        spec["clusters"] = [
            {"name": name, "replicas": count} if count else {"name": name}
            for name, count in placed.items()
        ]
        text = applied_text(placement if applied is None else applied)
        metadata["annotations"] = {stamps.APPLIED_PLACEMENT: text}
    resource = {
        "apiVersion": kind[0],
        "kind": kind[1],
        "namespace": "default",
        "name": "web",
        "uid": "0",
    }
    held: Object = {"placement": placement, "resource": resource, **spec}
    if replicas:
        held["replicas"] = replicas
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": metadata,
        "spec": held,
    }


def plan(held: Object, *clusters: Object) -> Decision:
    """Return what the scheduler decides about a binding."""
    return plan_for(held, fleet(*clusters))


def names(*clusters: str) -> Object:
    """Return a placement that names its clusters."""
    return {"clusterAffinity": {"clusterNames": list(clusters)}}
