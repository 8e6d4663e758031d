"""Bindings, templates and Works for tests of what is made of them."""

from typing import Any

from clusterspace.apis import stamps
from clusterspace.apis.affinities import Traits
from clusterspace.fleet.propagation.bindings import targets_of
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.works.rendering import Outline, new_work, outline_for_binding
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.builders import deployment


def template(name: str = "web", **metadata: Any) -> Object:
    """Return a Deployment as the hub holds it."""
    held = {"uid": f"uid-of-{name}", "resourceVersion": "7", "generation": 2, **metadata}
    return with_metadata(deployment(name, replicas=3), **held)


def binding(*clusters: str, replicas: int = 0, name: str = "web", **spec: Any) -> Object:
    """Return the binding of that Deployment, scheduled to these clusters."""
    chosen = [{"name": each, **_wanted(replicas)} for each in clusters]
    resource = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "default",
        "name": name,
        "uid": f"uid-of-{name}",
        "resourceVersion": "7",
    }
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {
            "name": f"{name}-deployment",
            "namespace": "default",
            "labels": {stamps.BINDING_ID: "binding-id"},
        },
        "spec": {"resource": resource, "clusters": chosen, **_wanted(replicas), **spec},
    }


def _wanted(replicas: int) -> Object:
    return {"replicas": replicas} if replicas else {}


def outlines(
    of: Object, held: Object | None = None, policies: OverridePolicies | None = None
) -> list[Outline]:
    """Return the outlines of all Works a binding calls for."""
    return [
        outline_for_binding(
            of,
            template() if held is None else held,
            target,
            Traits(target.name, {}),
            policies or OverridePolicies(),
        )
        for target in targets_of(of)
    ]


def work(cluster: str, **metadata: Any) -> Object:
    """Return a Work of that Deployment as the hub holds it."""
    (outline,) = outlines(binding(cluster))
    made = new_work(outline, f"work-in-{cluster}")
    held = {"uid": f"uid-in-{cluster}", "resourceVersion": "9", **metadata}
    return with_metadata(made, **held)
