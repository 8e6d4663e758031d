"""What a built-in object looks like before anybody has written to it.

Kubernetes compares a new object with an empty one of its Go type, and an empty struct is written
out unless it is held by a pointer: an empty Deployment has a `spec` with a `strategy`. Whoever
creates the object therefore owns what is in those places, but not the places themselves.
Custom objects have no Go type: their blank is empty.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema

# Wherever an empty object has one of these, at any depth, it is written out.
_ALWAYS_WRITTEN: Final = frozenset({"metadata", "spec", "status"})

# What is neither required nor of those names, and is written out all the same.
_ALSO_WRITTEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "CustomResourceDefinition": {"status": {"acceptedNames": {}}},
    "DaemonSet": {"spec": {"updateStrategy": {}}},
    "Deployment": {"spec": {"strategy": {}}},
    "Event": {
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
        "deprecatedSource": {},
        "eventTime": None,
        "firstTimestamp": None,
        "lastTimestamp": None,
        "regarding": {},
        "reportingComponent": "",
        "reportingInstance": "",
        "source": {},
    },
    "Ingress": {"status": {"loadBalancer": {}}},
    "NetworkPolicy": {"spec": {"podSelector": {}}},
    "Node": {"status": {"daemonEndpoints": {"kubeletEndpoint": {}}, "nodeInfo": {}}},
    "PersistentVolumeClaim": {"spec": {"resources": {}}},
    "PodTemplate": {"template": {}},
    "ReplicaSet": {"spec": {"template": {}}},
    "ResourceClaim": {"spec": {"devices": {}}},
    "ResourceClaimTemplate": {"spec": {"spec": {"devices": {}}}},
    "SelfSubjectReview": {"status": {"userInfo": {}}},
    "Service": {"status": {"loadBalancer": {}}},
    "StatefulSet": {"spec": {"updateStrategy": {}}},
    "TokenRequest": {"spec": {"boundObjectRef": None}},
    "TokenReview": {"status": {"user": {}}},
}


def blank_object(kind: str, schema: Schema) -> Object:
    """Return the blank of a built-in kind."""
    return _blank(schema, _ALSO_WRITTEN.get(kind, {}))


def _blank(schema: Schema, also: Mapping[str, Any]) -> Object:
    written = _ALWAYS_WRITTEN | schema.required | also.keys()
    blank: Object = {}
    for name, inner in schema.properties.items():
        said = also.get(name, {})
        if not isinstance(said, dict):
            blank[name] = said
        elif name in written and inner.type == "object":
            blank[name] = _blank(inner, cast("Object", said))
        elif name in written and inner.type == "array":
            blank[name] = None
    return blank
