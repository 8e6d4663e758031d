"""The few sentences of ours in OpenAPI documents: the fields that every object has.

Definitions are facts without prose, but for these: no schema of a custom resource describes them,
and `kubectl explain` of any kind begins with them.
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.apiserver.openapi_documents import names

OWN_FIELDS: Final[Mapping[str, str]] = {
    "apiVersion": "APIVersion defines the version of the schema that this object is written in.",
    "kind": "Kind is the type of this object, as its definition names it.",
    "metadata": "Standard object's metadata: its name, its labels, and who owns what of it.",
}
"""Of a custom object, which leaves them to the server."""

DESCRIBED: Final[Mapping[str, Mapping[str, str]]] = {
    names.OBJECT_META: {
        "annotations": "Annotations are notes for programs and people; nothing selects by them.",
        "creationTimestamp": "CreationTimestamp is a timestamp of when the server made the object.",
        "deletionGracePeriodSeconds": "How long the object has to end, once it is deleted.",
        "deletionTimestamp": "When the object is to be gone; set by the server when it is deleted.",
        "finalizers": "Who has to finish something before the object may go; empty lets it go.",
        "generateName": "What the server begins a name with, when no name is given.",
        "generation": "A number that grows whenever what is wanted of the object changes.",
        "labels": "Keys and values that objects are selected by.",
        "managedFields": "Which manager set which fields, and when.",
        "name": "The name of the object, unique among its kind in its namespace.",
        "namespace": "The namespace the object is in; empty for kinds that are in none.",
        "ownerReferences": "The objects this one belongs to; without any of them it goes, too.",
        "resourceVersion": "The version of the object as it was read; opaque, and compared only.",
        "selfLink": "Where the object used to be found; no longer set.",
        "uid": "What tells this object from others that had its name before, or will have it.",
    }
}
"""Of built-in definitions, by the name of the definition and of the field."""
