"""Short constructors for policies and the selectors in them."""

from typing import Any

from clusterspace.kube.objects import Object


def policy(name: str, space: str, *selectors: Object, **spec: Any) -> Object:
    """Return a PropagationPolicy, or a ClusterPropagationPolicy for an empty space."""
    where = {"namespace": space} if space else {}
    chosen = {"clusterAffinity": {"clusterNames": ["member1"]}}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy" if space else "ClusterPropagationPolicy",
        "metadata": {"name": name, **where},
        "spec": {"resourceSelectors": list(selectors), "placement": chosen, **spec},
    }


def config_maps(**more: Any) -> Object:
    """Return a selector of ConfigMaps."""
    return {"apiVersion": "v1", "kind": "ConfigMap", **more}
