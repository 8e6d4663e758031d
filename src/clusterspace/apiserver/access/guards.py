"""The plug-ins that stand between an authorized write and the store.

A request is authorized by its URL. What its body grants, names or makes is only known here.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, cast

from clusterspace.apis import bindings, clusters, fleet_placements, member_clusters, works
from clusterspace.apis.bindings import template_of
from clusterspace.apis.cluster_credentials import SUBRESOURCE, changed_fields
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.override_limits import grants_rights
from clusterspace.apiserver.access.agents import scope_of
from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.access.escalation import Comparison, EscalationCheck
from clusterspace.apiserver.access.parts import carries_for_others
from clusterspace.apiserver.access.snapshot import RBAC_GROUP
from clusterspace.apiserver.admissions import Admission
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.http.middleware.authorize import refusal
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.state import HubState
from clusterspace.errors import Forbidden, NotFound
from clusterspace.kube import statuses
from clusterspace.kube.field_paths import quoted
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, namespace_of

_BINDINGS: Final = frozenset({bindings.RESOURCE_BINDING, bindings.CLUSTER_RESOURCE_BINDING})

_CARRIERS: Final = {
    (WORKS.group, works.KIND): ("spec", "workload", "manifests"),
    (fleet_placements.GROUP, "Work"): ("spec", "workload", "manifests"),
    (fleet_placements.GROUP, fleet_placements.RESOURCE_SNAPSHOT): ("spec", "selectedResources"),
}
"""Kinds whose objects hold manifests of others, and where."""

_DEPENDENCIES: Final = ("configmaps", "persistentvolumeclaims", "secrets", "serviceaccounts")
"""What a template may need beside it on a cluster."""


class CreateRight:
    """A patch or update that makes a new object needs the right to create it."""

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let changes pass; ask who makes something new whether they may."""
        if admission.is_create:
            self._authorizer.require(admission.user, _asked_of("create", admission))
        return admission.new


def _asked_of(verb: str, admission: Admission) -> RequestInfo:
    """Return the request to do something with the object itself."""
    info = admission.served.info
    asked = _question(verb, info.group, info.version, info.plural)
    namespace = namespace_of(admission.new) if info.namespaced else ""
    return replace(asked, namespace=namespace, name=name_of(admission.new))


def _question(verb: str, group: str, version: str, plural: str) -> RequestInfo:
    return RequestInfo(
        method="",
        path="",
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        resource=plural,
    )


class OwnerRight:
    """Who changes the owners of an object needs the right to delete it.

    What names an owner that is not there is collected as garbage, so to set one is to delete.
    Kubernetes asks the same, in its plug-in OwnerReferencesPermissionEnforcement. Agents are not
    asked: the AgentGuard says which owners they may name.
    """

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let new objects and unchanged owners pass; ask for the right otherwise."""
        new, old = admission.new, admission.old
        if old is None or _owners(new) == _owners(old) or scope_of(admission.user) is not None:
            return new
        needed = _asked_of("delete", admission)
        if not self._authorizer.decide_now(admission.user, needed).allowed:
            why = "metadata.ownerReferences says when it is deleted; changing it needs this right"
            raise refusal(admission.user, needed, why)
        return new


def _owners(kube_object: Object) -> Any:
    return find_at(kube_object, "metadata", "ownerReferences") or None


class TemplateRight:
    """A binding sends an object to members: whoever writes one needs the right to `get` it.

    Controllers, ours and Karmada's, may read everything. Somebody with bindings alone could have
    objects sent to where they can read them. With `spec.propagateDeps` so could somebody with
    workloads, who may name any Secret: this needs the right to get all that may be needed.
    """

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let statuses and marks pass; ask who says what goes where whether they may see it."""
        info, binding = admission.served.info, admission.new
        is_binding = info.group == bindings.RESOURCE_BINDINGS.group and info.kind in _BINDINGS
        old = admission.old or {}
        if not is_binding or admission.subresource or _sent_by(binding) == _sent_by(old):
            return binding
        about = template_of(binding)
        group, kind, namespace, name = about.subject
        served = hub.catalog.find_kind(group, kind)
        # A kind nobody serves yet may be served later: then only a right on all of them will do.
        plural = "*" if served is None else served.info.plural
        asked = _question("get", group, about.api_version.rpartition("/")[2], plural)
        asked = replace(asked, namespace=namespace, name=name)
        if not self._authorizer.decide_now(admission.user, asked).allowed:
            why = (
                f"it would place {kind} {about.key}, and user {quoted(admission.user.name)} may "
                f"not get that"
            )
            raise _refused(admission, why)
        if find_at(binding, "spec", "propagateDeps"):
            self._check_dependencies(admission, namespace)
        return binding

    def _check_dependencies(self, admission: Admission, namespace: str) -> None:
        """Ask about whole kinds: what the template needs may change after this."""
        for plural in _DEPENDENCIES:
            asked = replace(_question("get", "", "v1", plural), namespace=namespace)
            if not self._authorizer.decide_now(admission.user, asked).allowed:
                why = (
                    f"spec.propagateDeps would place any {plural} that the object needs, and user "
                    f"{quoted(admission.user.name)} may not get all of them"
                )
                raise _refused(admission, why)


def _sent_by(binding: Object) -> tuple[Object | None, str, str | None]:
    """Return all that decides what a binding sends where.

    A placement's binding sends a state that was written down, which an annotation names and a
    label makes count; both would otherwise be ways to change what is sent without `spec`.
    """
    states = annotations_of(binding).get(fleet_placements.MANIFEST_HASHES)
    return binding.get("spec"), fleet_placements.parent_of(binding), states


class CredentialsRight:
    """Where a Cluster's credentials go is said by those who may join clusters, and nobody else.

    Who may patch Clusters cordons and labels them. An address, a Secret or a proxy would send a
    member's token anywhere, so these fields need `update` on `clusters/credentials`, which is a
    right and no URL. A MemberCluster's identity is given the member's rights, so it needs the same
    on `memberclusters/credentials`.
    """

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let what touches none of these fields pass; ask for the right otherwise."""
        new, info = admission.new, admission.served.info
        says = _said_of_credentials(admission)
        if not says:
            return new
        asked = _question("update", info.group, info.version, info.plural)
        needed = replace(asked, subresource=SUBRESOURCE, name=name_of(new))
        if not self._authorizer.decide_now(admission.user, needed).allowed:
            why = (
                f"{says}; a ClusterRole that joins "
                f'clusters has verb "update" on resource "{needed.resource}/{SUBRESOURCE}"'
            )
            raise refusal(admission.user, needed, why)
        return new


def _said_of_credentials(admission: Admission) -> str:
    """Return which fields a write changes that need the right, and what they say; or nothing."""
    new, old = admission.new, admission.old
    if admission.is_of(clusters.CLUSTERS.group, clusters.KIND):
        fields = ", ".join(f"spec.{each}" for each in changed_fields(new, old))
        return f"{fields} says where the cluster's credentials go" if fields else ""
    if admission.is_of(member_clusters.GROUP, member_clusters.KIND):
        path = ("spec", "identity")
        # Compared as written: the schema has not been asked yet, so it may be anything.
        is_changed = (find_at(new, *path) or None) != (find_at(old, *path) or None)
        return "spec.identity says who is given the member's rights" if is_changed else ""
    return ""


class EscalationGuard:
    """Refuses roles and bindings that grant more than their author holds.

    Also those that are to be made on a member: in a Work, or in the state of an object that a
    placement wrote down. What our controllers put there was checked when somebody wrote it; other
    controllers pass by the verbs `escalate` and `bind`, as everybody does.
    """

    def __init__(self, check: EscalationCheck) -> None:
        self._check = check

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        info = admission.served.info
        found = self._check.find_comparison(admission.user, info, admission.new, admission.old)
        if found is not None and found.is_long:
            await off_loop(admission.user.name, found.require_held)
        elif found is not None:
            await admission.run(found.require_held)
        is_carrier = (info.group, info.kind) in _CARRIERS and not admission.subresource
        if is_carrier and not carries_for_others(admission.user):
            await self._check_carried(hub, admission)
        return admission.new

    async def _check_carried(self, hub: HubState, admission: Admission) -> None:
        before = {_subject(each): each for each in _carried_roles(admission, admission.old or {})}
        comparisons: list[Comparison] = []
        try:
            for role in _carried_roles(admission, admission.new):
                served = hub.catalog.find_kind(RBAC_GROUP, str(role.get("kind")))
                if served is not None:
                    old = before.get(_subject(role))
                    found = self._check.find_comparison(admission.user, served.info, role, old)
                    comparisons += () if found is None else (found,)

            def require_all_held() -> None:
                for comparison in comparisons:
                    comparison.require_held()

            if any(each.is_long for each in comparisons):
                await off_loop(admission.user.name, require_all_held)
            else:
                await admission.run(require_all_held)
        except (Forbidden, NotFound) as error:
            # What a role that only the member has would grant is not known here.
            raise _refused(admission, f"a manifest grants rights: {error.message}") from error


def _carried_roles(admission: Admission, carrier: Object) -> Iterator[Object]:
    """Yield what is RBAC's among the manifests of a carrier; the schema has not been asked yet."""
    info = admission.served.info
    manifests: Any = find_at(carrier, *_CARRIERS[info.group, info.kind])
    for each in cast("list[Any]", manifests) if isinstance(manifests, list) else ():
        if isinstance(each, dict):
            manifest = cast("Object", each)
            if grants_rights(str(manifest.get("apiVersion"))):
                yield manifest


def _subject(role: Object) -> tuple[str, str, str]:
    return str(role.get("kind")), namespace_of(role), name_of(role)


class AgentGuard:
    """Refuses what an agent writes about anybody but itself."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        scope = scope_of(admission.user)
        if scope is not None:
            info = admission.served.info
            why = scope.refusal_of(info, admission.new, admission.old)
            if why:
                raise _refused(admission, why)
        return admission.new


def _refused(admission: Admission, why: str) -> Forbidden:
    return statuses.forbidden(admission.served.info.group_resource, name_of(admission.new), why)
