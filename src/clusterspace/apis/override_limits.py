"""What no override may change: which object it is, whose it is, and what it grants.

    apiVersion, kind              the object's identity, as policies and rights know it
    metadata, but for labels      name and namespace, and what the servers keep there
      and annotations
    labels and annotations of     marks by which hub and members know their objects, and what
      our own domains             becomes of them in a conflict
    rules, roleRef, subjects, …   of RBAC kinds: the hub compared them with the rights of whoever
                                  wrote the template, and nobody compares an override's

An override is written by somebody who may change objects of a namespace on their way to members.
With any of these in their hands it would be somebody who may write anything, anywhere.

The same limits are held twice: against pointers, when an override policy is written, and against
the outcome, when it is applied. The outcome is what counts.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from clusterspace.apis import stamps
from clusterspace.errors import OverrideFailed
from clusterspace.kube.json_pointers import Steps, write_pointer
from clusterspace.kube.objects import Object, metadata_of

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_GRANTS: Final = frozenset({"rules", "roleRef", "subjects", "aggregationRule"})
_METADATA: Final = "metadata"
_IDENTITY: Final = frozenset({"apiversion", "kind", _METADATA})
_MAPS: Final = ("labels", "annotations")

_OUR_DOMAINS: Final = (
    "karmada.io",
    "clusterspace.io",
    "kubernetes-fleet.io",
    RBAC_GROUP,  # labels by which roles are gathered into others
    "rbac.authorization.kubernetes.io",
)
_USERS_MARKS: Final = frozenset({stamps.RETAIN_REPLICAS})
"""Words with our prefix that mean nothing but what the member object is to look like."""


def is_mark(key: str) -> bool:
    """Whether a label or annotation is one that no override may touch."""
    domain, slash, _ = key.partition("/")
    if not slash or key in _USERS_MARKS:
        return False
    lowered = domain.lower()
    return lowered in _OUR_DOMAINS or lowered.endswith(tuple(f".{each}" for each in _OUR_DOMAINS))


def grants_rights(api_version: str) -> bool:
    """Whether objects of this group are about who may do what."""
    return api_version.partition("/")[0] == RBAC_GROUP


def pointer_problem(steps: Steps, *, may_mean_grants: bool = False) -> str:
    """Return why an override may not point here; empty when it may.

    `may_mean_grants` says that the policy may select RBAC kinds.
    """
    if not steps:
        return "is the whole object, and an override keeps which object it is"
    first = steps[0]
    if first != _METADATA and first.lower() in _IDENTITY:
        return "says which object it is: an override keeps that"
    if may_mean_grants and first in _GRANTS:
        return "says what an RBAC object grants: change the object itself, by your own rights"
    if first != _METADATA:
        return ""
    if len(steps) == 1 or steps[1] not in _MAPS:
        return "says which object it is: of metadata, overrides change labels and annotations"
    if len(steps) > 2 and is_mark(steps[2]):
        return f"{steps[2]} is a mark of the control plane"
    return ""


def value_problem(steps: Steps, value: Any) -> str:
    """Return why an override may not put a value where a pointer points; empty when it may."""
    if len(steps) != 2 or steps[0] != _METADATA or not isinstance(value, dict):
        return ""
    marks = sorted(key for key in cast("Object", value) if is_mark(key))
    return f"{marks[0]} is a mark of the control plane" if marks else ""


def require_same_object(template: Object, overridden: Object) -> None:
    """Raise OverrideFailed unless an override kept what it must keep.

    Marks may be lost, with a map that is replaced whole: stamps of ours come later, and what
    becomes of conflicts is read from the template. None may be added or changed.
    """
    is_grant = grants_rights(str(template.get("apiVersion")))
    for field in {**template, **overridden}:
        if field == _METADATA or template.get(field) == overridden.get(field):
            continue
        if field.lower() in _IDENTITY:  # some readers of JSON take `Kind` for `kind`
            raise OverrideFailed(f"it would make {overridden.get(field)!r} of /{field}")
        if is_grant:
            raise OverrideFailed(f"it would change /{field}, and with it what is granted")
    before, after = metadata_of(template), metadata_of(overridden)
    for field in {**before, **after}:
        if field not in _MAPS and before.get(field) != after.get(field):
            pointer = write_pointer((_METADATA, field))
            raise OverrideFailed(f"it would change {pointer}, which says which object it is")
    for field in _MAPS:
        ours, theirs = _map(before.get(field)), _map(after.get(field))
        for key, held in theirs.items():
            if is_mark(key) and (key not in ours or ours[key] != held):
                pointer = write_pointer((_METADATA, field, key))
                raise OverrideFailed(f"it would change {pointer}, a mark of the control plane")


def _map(held: Any) -> Mapping[str, Any]:
    return cast("Object", held) if isinstance(held, dict) else {}
