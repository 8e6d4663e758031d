"""Putting the default roles there, and leaving users' additions alone.

What is missing is added: a role, a rule, a label, a subject. What is there stays. A role whose
autoupdate annotation is `false` is its users' own.
"""

from collections.abc import Iterable
from typing import Any, Final

from clusterspace.apiserver.access.aggregation import aggregate_all
from clusterspace.apiserver.access.coverage import missing_atoms
from clusterspace.apiserver.access.default_roles import (
    AUTOUPDATE,
    BINDINGS,
    PART_BINDINGS,
    PART_ROLES,
    ROLES,
)
from clusterspace.apiserver.access.rbac import read_rules
from clusterspace.apiserver.access.snapshot import RBAC_GROUP
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.ownership import write_of
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own
from clusterspace.errors import AlreadyExists
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
)

MANAGER: Final = "kube-apiserver"
_PLURALS: Final = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "RoleBinding": "rolebindings",
}
_SELECTORS: Final = ("aggregationRule", "clusterRoleSelectors")


async def install_default_roles(hub: HubState) -> None:
    """Make the default roles and bindings, or complete them; harmless when repeated."""
    for default in (*ROLES, *BINDINGS):
        await _install(hub, default.as_object())
    await aggregate_all(hub)


async def install_part_roles(hub: HubState) -> None:
    """Make or complete the roles under which gateway and controllers work with this hub."""
    for default in (*PART_ROLES, *PART_BINDINGS):
        await _install(hub, default.as_object())


async def _install(hub: HubState, wanted: Object) -> None:
    served = hub.catalog.get_storage(RBAC_GROUP, _PLURALS[wanted["kind"]])
    key = served.key(namespace_of(wanted), name_of(wanted))

    def completed(present: Object) -> Object:
        return complete(present, wanted)

    write = write_of(hub, served, manager=MANAGER)
    if await edit_own(hub, served, key, completed, write=write) is None:
        await _create(hub, served, wanted)


async def _create(hub: HubState, served: Served, wanted: Object) -> None:
    try:
        await create_own(hub, served, wanted, MANAGER)
    except AlreadyExists:
        return  # another hub on the same store was quicker, with the same role


def complete(present: Object, wanted: Object) -> Object:
    """Return a role or binding with what it lacks; the same object when it lacks nothing."""
    if annotations_of(present).get(AUTOUPDATE) == "false":
        return present
    metadata = {**metadata_of(present)}
    for field in ("labels", "annotations"):
        metadata[field] = {**metadata_of(wanted)[field], **(metadata.get(field) or {})}
    completed = {**present, "metadata": metadata, **_completed_body(present, wanted)}
    return present if completed == present else completed


def _completed_body(present: Object, wanted: Object) -> Object:
    if "roleRef" in wanted:
        return _completed_binding(present, wanted)
    selectors = find_at(wanted, *_SELECTORS)
    if selectors:
        held: list[Any] = find_at(present, *_SELECTORS) or []
        return {"aggregationRule": {"clusterRoleSelectors": _with_missing(held, selectors)}}
    held_rules = read_rules(present.get("rules"))
    lacking = [
        rule.as_object()
        for rule in read_rules(wanted["rules"])
        if any(missing_atoms((rule,), held_rules))
    ]
    return {"rules": [*(present.get("rules") or []), *lacking]} if lacking else {}


def _completed_binding(present: Object, wanted: Object) -> Object:
    if present.get("roleRef") != wanted["roleRef"]:
        # Under this name it would grant another role to everybody we name: made anew.
        return {"roleRef": wanted["roleRef"], "subjects": wanted["subjects"]}
    return {"subjects": _with_missing(present.get("subjects") or [], wanted["subjects"])}


def _with_missing(held: list[Any], wanted: Iterable[Any]) -> list[Any]:
    return [*held, *(each for each in wanted if each not in held)]
