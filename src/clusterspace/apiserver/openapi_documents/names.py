"""How definitions, operations and tags are called, in the way Kubernetes calls them.

Client generators make class and method names of these, so they are kept letter for letter:
`io.k8s.api.apps.v1.Deployment`, `listAppsV1NamespacedDeployment`, `apps_v1`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from clusterspace.apiserver.openapi_documents import names
from clusterspace.builtins import schemas as builtin_schemas
from clusterspace.kube.resources import GroupVersion, GroupVersionKind

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"

OBJECT_META: Final = f"{_META}.ObjectMeta"
LIST_META: Final = f"{_META}.ListMeta"
STATUS: Final = f"{_META}.Status"
PATCH: Final = f"{_META}.Patch"
DELETE_OPTIONS: Final = f"{_META}.DeleteOptions"
API_RESOURCE_LIST: Final = f"{_META}.APIResourceList"
API_GROUP: Final = f"{_META}.APIGroup"
API_GROUP_LIST: Final = f"{_META}.APIGroupList"
API_VERSIONS: Final = f"{_META}.APIVersions"
VERSION_INFO: Final = "io.k8s.apimachinery.pkg.version.Info"

_COMPONENTS: Final = "#/components/schemas/"

GROUP_VERSION_KIND: Final = "x-kubernetes-group-version-kind"


def reference(definition: str) -> dict[str, str]:
    """Return a reference to a definition of the same document."""
    return {"$ref": f"{_COMPONENTS}{definition}"}


def referred(target: str) -> str:
    """Return the name of the definition that a reference is to."""
    return target.removeprefix(_COMPONENTS)


def find_published(kind: GroupVersionKind) -> str | None:
    """Return Kubernetes' name for the definition of a kind; None for a kind it does not have."""
    return _published().get(kind)


def definition_name(kind: GroupVersionKind) -> str:
    """Return the name of the definition of any kind.

    >>> definition_name(GroupVersionKind("shop.example.com", "v1", "Widget"))
    'com.example.shop.v1.Widget'
    """
    published = find_published(kind)
    if published is not None:
        return published
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def group_words(group: str) -> str:
    """Return a group as it stands in the name of an operation.

    >>> group_words("rbac.authorization.k8s.io"), group_words("shop.example.com"), group_words("")
    ('RbacAuthorization', 'ShopExampleCom', 'Core')
    """
    words = (group.removesuffix(".k8s.io") or "core").split(".")
    return "".join(_capitalized(piece) for word in words for piece in word.split("-"))


def version_words(group_version: GroupVersion) -> str:
    """Return a group version as it stands in the name of an operation: `AppsV1`."""
    return group_words(group_version.group) + _capitalized(group_version.version)


def tag_of_group(group: str) -> str:
    """Return the tag of what concerns a whole group: `apps`, `rbacAuthorization`."""
    words = group_words(group)
    return words[0].lower() + words[1:]


def tag_of(group_version: GroupVersion) -> str:
    """Return the tag of the operations of a group version: `apps_v1`."""
    return f"{tag_of_group(group_version.group)}_{group_version.version}"


def _capitalized(word: str) -> str:
    return word[:1].upper() + word[1:]


@cache
def _published() -> Mapping[GroupVersionKind, str]:
    return {
        GroupVersionKind(kind["group"], kind["version"], kind["kind"]): name
        for name in builtin_schemas.definition_names()
        for kind in builtin_schemas.definition(name).raw.get(GROUP_VERSION_KIND, ())
    }


# -- the few sentences of ours ---------------------------------------------------------------------
#
# Definitions are facts without prose, but for these: no schema of a custom resource describes the
# fields that every object has, and `kubectl explain` of any kind begins with them.

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
