"""Placements and what comes of them, as tests write them."""

from typing import Any

from clusterspace.apis.fleet_placements import PARENT, owner_reference
from clusterspace.kube.objects import Object


def placement(name: str = "crp", **spec: Any) -> Object:
    metadata = {"name": name, "uid": f"uid-of-{name}", "generation": 3}
    return {"metadata": metadata, "spec": spec}


def stored(made: Object, version: int = 1) -> Object:
    """Return an object as the hub keeps it."""
    metadata = {**made["metadata"], "resourceVersion": str(version), "generation": 1}
    return {**made, "metadata": metadata}


def owned(name: str, parent: Object, **labels: str) -> Object:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "labels": {PARENT: parent["metadata"]["name"], **labels},
            "ownerReferences": [owner_reference(parent)],
        }
    }
