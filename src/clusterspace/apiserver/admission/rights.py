"""Rights that a URL does not show: what the body of a write makes, names or sends.

A request is authorized by its URL before its body is read. These rules ask the authorizer again,
once it is known what the write is about; what a body *grants* is `escalation.py`'s.
"""

from typing import Final

from clusterspace.apis import (
    autoscalers,
    clusters,
    fleet_overrides,
    fleet_placements,
    interpreters,
    member_clusters,
    staged_updates,
    tunnels,
    witnesses,
    works,
)
from clusterspace.apis.clusters import CREDENTIALS_SUBRESOURCE, changed_fields
from clusterspace.apis.identities import CONTROLLERS_USER
from clusterspace.apis.overrides import RBAC_GROUP
from clusterspace.apis.works import template_of
from clusterspace.apiserver.access import components
from clusterspace.apiserver.access.agents import ScopeOf, scope_of
from clusterspace.apiserver.access.authorizer import HubAuthorizer, resource_attributes
from clusterspace.apiserver.admission.propagation import shape_causes, stored_objects
from clusterspace.apiserver.http.guards import Authorizer, refusal
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.state import Admission, HubState, Operation, Plugin
from clusterspace.errors import Forbidden
from clusterspace.kube import statuses
from clusterspace.kube.causes import quoted
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
)
from clusterspace.kube.resources import GroupVersionResource, ResourceInfo

_BINDINGS: Final = frozenset({works.RESOURCE_BINDING, works.CLUSTER_RESOURCE_BINDING})

_RUNS: Final = frozenset(each.run for each in staged_updates.STAGED_SCOPES)

_SNAPSHOTS: Final = frozenset(each.resource_snapshot for each in fleet_placements.SCOPES)

_OVERRIDES: Final = {
    fleet_overrides.CLUSTER_KIND: ("spec",),
    fleet_overrides.NAMESPACED_KIND: ("spec",),
    f"{fleet_overrides.CLUSTER_KIND}Snapshot": ("spec", "overrideSpec"),
    f"{fleet_overrides.NAMESPACED_KIND}Snapshot": ("spec", "overrideSpec"),
}
"""KubeFleet's overrides and the snapshots of them, and where each says what it changes."""

_DEPENDENCIES: Final = ("configmaps", "persistentvolumeclaims", "secrets", "serviceaccounts")
"""What a template may need beside it on a cluster."""

_MEMBERS_AUTOSCALERS: Final = GroupVersionResource("autoscaling", "v2", "horizontalpodautoscalers")
"""Placed ones scale on members, and their template follows."""


class CreateRight(Plugin):
    """A patch or update that makes a new object needs the right to create it."""

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let changes pass; ask who makes something new whether they may."""
        # By its URL it may be a patch or an update: only here is it known that nothing is there.
        if admission.is_create:
            self._authorizer.require(admission.user, _request_for("create", admission))
        return admission.new


def _request_for(verb: str, admission: Admission) -> RequestInfo:
    """Return the request to do something with the object itself."""
    info, new = admission.served.info, admission.new
    namespace = namespace_of(new) if info.namespaced else ""
    return resource_attributes(
        verb,
        info.group,
        info.plural,
        version=info.version,
        namespace=namespace,
        name=name_of(new),
    )


class OwnerRight(Plugin):
    """Who changes the owners of an object needs the right to delete it.

    What names an owner that is not there is collected as garbage, so to set one is to delete.
    Kubernetes asks the same, in its plug-in OwnerReferencesPermissionEnforcement. Agents are not
    asked: the AgentGuard says which owners they may name.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let new objects and unchanged owners pass; ask for the right otherwise."""
        new, old = admission.new, admission.old
        if old is None or scope_of(admission.user) is not None:
            return new
        before, after = (find_at(each, "metadata", "ownerReferences") for each in (old, new))
        if (before or None) == (after or None):
            return new
        needed = _request_for("delete", admission)
        if not (await self._authorizer.decide(admission.user, needed)).allowed:
            why = "metadata.ownerReferences says when it is deleted; changing it needs this right"
            raise refusal(admission.user, needed, why)
        return new


class TemplateRight(Plugin):
    """A binding sends an object to members: whoever writes one needs the right to `get` it.

    Controllers, ours and Karmada's, may read everything. Somebody with bindings alone could have
    objects sent to where they can read them. With `spec.propagateDeps` so could somebody with
    workloads, who may name any Secret: this needs the right to get all that may be needed.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let statuses and marks pass; ask who says what goes where whether they may see it."""
        info, binding = admission.served.info, admission.new
        is_binding = info.group == works.RESOURCE_BINDINGS.group and info.kind in _BINDINGS
        old = admission.old or {}
        if not is_binding or admission.subresource or _sent_by(binding) == _sent_by(old):
            return binding
        about = template_of(binding)
        group, kind, namespace, name = about.subject
        served = hub.catalog.find_kind(group, kind)
        # A kind nobody serves yet may be served later: then only a right on all of them will do.
        plural = "*" if served is None else served.info.plural
        user, version = admission.user, about.api_version.rpartition("/")[2]
        needed = resource_attributes(
            "get", group, plural, version=version, namespace=namespace, name=name
        )
        if not (await self._authorizer.decide(user, needed)).allowed:
            why = (
                f"it would place {kind} {about.key}, and user {quoted(user.name)} may not get that"
            )
            raise _refused(admission, why)
        # About whole kinds: what the template needs may change after this.
        for plural in _DEPENDENCIES if find_at(binding, "spec", "propagateDeps") else ():
            needed = resource_attributes("get", "", plural, version="v1", namespace=namespace)
            if not (await self._authorizer.decide(user, needed)).allowed:
                why = (
                    f"spec.propagateDeps would place any {plural} that the object needs, and user "
                    f"{quoted(user.name)} may not get all of them"
                )
                raise _refused(admission, why)
        return binding


class OverrideRight(Plugin):
    """Who overrides what a role grants needs the right to `escalate` that role.

    What it will grant is not known here: the role, and with it the outcome, may change at any time.
    So it is not compared with what the author holds, as the rules of a role are; it takes the right
    by which somebody may write into that role whatever they like. The same is asked of who writes
    the snapshot of an override, which is what is applied.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let what changes no grants pass; ask for the right otherwise."""
        info, new, user = admission.served.info, admission.new, admission.user
        is_override = info.group == fleet_placements.GROUP and info.kind in _OVERRIDES
        if not is_override or admission.subresource or components.carries_for_others(user):
            return new
        path = _OVERRIDES[info.kind]
        spec: Object | None = find_at(new, *path)
        before: Object | None = find_at(admission.old or {}, *path)
        # One of another shape is refused by its schema a moment later, and cannot be read here.
        if spec == before or shape_causes(admission):
            return new
        for kind, name in fleet_overrides.roles_granted_by(spec or {}):
            is_wide = kind == "ClusterRole"
            plural = "clusterroles" if is_wide else "roles"
            namespace = "" if is_wide else namespace_of(new)
            needed = resource_attributes(
                "escalate", RBAC_GROUP, plural, version="v1", namespace=namespace, name=name
            )
            if not (await self._authorizer.decide(user, needed)).allowed:
                why = f"the override would change what {kind} {name} grants on members"
                raise refusal(user, needed, why)
        return new


def _sent_by(binding: Object) -> tuple[Object | None, str, str | None]:
    """Return all that decides what a binding sends where.

    A placement's binding sends a state that was written down, which an annotation names and a
    label makes count; both would otherwise be ways to change what is sent without `spec`.
    """
    states = annotations_of(binding).get(fleet_placements.MANIFEST_HASHES)
    return binding.get("spec"), fleet_placements.parent_of(binding), states


class CredentialsRight(Plugin):
    """Where a Cluster's credentials go is said by those who may join clusters, and nobody else.

    Who may patch Clusters cordons and labels them. An address, a Secret or a proxy would send a
    member's token anywhere, so these fields need `update` on `clusters/credentials`, which is a
    right and no URL. So does whose agent works there: the other one would stop. A MemberCluster's
    identity is given the member's rights, so it needs the same on `memberclusters/credentials`.
    And agents let the servers into their clusters that certain Leases name: who writes one needs
    `update` on `clusters/tunnel`; who writes one that says which clusters answer, `update` on
    `clusters/witness`. Many may write Leases.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let what touches none of these fields pass; ask for the right otherwise."""
        new, old, info = admission.new, admission.old, admission.served.info
        says = ""
        if admission.is_of(clusters.CLUSTERS.group, clusters.KIND):
            fields = ", ".join(f"spec.{each}" for each in changed_fields(new, old))
            says = f"{fields} says where the cluster's credentials go" if fields else ""
            if (
                not says
                and old is not None
                and annotations_of(new).get(member_clusters.AGENT)
                != (annotations_of(old).get(member_clusters.AGENT))
            ):
                says = f"annotation {member_clusters.AGENT} says who carries out its Works"
        elif admission.is_of(member_clusters.GROUP, member_clusters.KIND):
            # Compared as written: the schema has not been asked yet, so it may be anything.
            before, after = (find_at(each, "spec", "identity") or None for each in (old, new))
            says = "spec.identity says who is given the member's rights" if before != after else ""
        elif info.plural == "leases":
            await self._require_lease_right(admission)
        if not says:
            return new
        needed = resource_attributes(
            "update",
            info.group,
            info.plural,
            version=info.version,
            subresource=CREDENTIALS_SUBRESOURCE,
            name=name_of(new),
        )
        if not (await self._authorizer.decide(admission.user, needed)).allowed:
            why = (
                f'{says}; a ClusterRole that joins clusters has verb "update" on resource '
                f'"{needed.resource}/{CREDENTIALS_SUBRESOURCE}"'
            )
            raise refusal(admission.user, needed, why)
        return new

    async def _require_lease_right(self, admission: Admission) -> None:
        namespace, name = namespace_of(admission.new), name_of(admission.new)
        if namespace == tunnels.LEASE_NAMESPACE and name.startswith(tunnels.LEASE_PREFIX):
            right = tunnels.SUBRESOURCE
            why = "the Lease says which servers agents let into their clusters"
        elif witnesses.is_witness_lease(namespace, name):
            right = witnesses.SUBRESOURCE
            why = "the Lease says which clusters answer, and others are left because of it"
        else:
            return
        group, version, plural = clusters.CLUSTERS.group, clusters.CLUSTERS.version, "clusters"
        needed = resource_attributes("update", group, plural, version=version, subresource=right)
        if not (await self._authorizer.decide(admission.user, needed)).allowed:
            raise refusal(admission.user, needed, why)


class RecordRight(Plugin):
    """What the controllers write down for themselves is written by nobody else.

    The status of a staged update run says which stages are over and what was approved, and the run
    goes on from there: who writes it passes by every approval. A snapshot is what clusters are
    brought to, and back to. Many may write all there is in one namespace, so the rights are of the
    whole hub: `update` on `clusterstagedupdateruns/progress` and on
    `clusterresourcesnapshots/contents`, which are no URLs.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let what changes no record pass; ask for the right otherwise."""
        info, new, old = admission.served.info, admission.new, admission.old or {}
        if info.group != fleet_placements.GROUP:
            return new
        if info.kind in _RUNS and admission.subresource == "status":
            is_record = new.get("status") != old.get("status")
            resource, right = staged_updates.CLUSTER_RUNS.runs, staged_updates.RECORD
            why = "the status of a run says what it did, and what it does next follows from that"
        elif info.kind in _SNAPSHOTS and not admission.subresource:
            # Which placement it is of, which number it has and what it said at first is in labels
            # and annotations.
            is_record = new.get("spec") != old.get("spec") or any(
                of(new) != of(old) for of in (labels_of, annotations_of)
            )
            resource, right = fleet_placements.RESOURCE_SNAPSHOTS, fleet_placements.CONTENTS
            why = "a snapshot says what clusters are brought to"
        else:
            return new
        needed = resource_attributes(
            "update", resource.group, resource.resource, version=resource.version, subresource=right
        )
        if is_record and not (await self._authorizer.decide(admission.user, needed)).allowed:
            raise refusal(admission.user, needed, why)
        return new


class AgentGuard(Plugin):
    """Refuses what an agent writes about anybody but itself."""

    def __init__(self, scope_of: ScopeOf = scope_of) -> None:
        self._scope_of = scope_of

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        scope = self._scope_of(admission.user)
        if scope is not None:
            info = admission.served.info
            why = scope.refusal_of(info, admission.new, admission.old)
            if why:
                raise _refused(admission, why)
        return admission.new


class ComponentGuard(Plugin):
    """Refuses what the controllers write, or delete, beyond their limits."""

    handles = frozenset({Operation.CREATE, Operation.UPDATE, Operation.DELETE})

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse a deletion of what was not written by them."""
        is_deletion = admission.operation is Operation.DELETE
        if is_deletion and admission.user.name == CONTROLLERS_USER:
            why = components.deletion_refusal_of(admission.served.info, admission.old or {})
            if why:
                raise _refused(admission, why)

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        is_write = admission.operation is not Operation.DELETE
        if is_write and admission.user.name == CONTROLLERS_USER:
            info, new, old = admission.served.info, admission.new, admission.old
            part = admission.subresource
            why = components.refusal_of(info, new, old, subresource=part)
            if why and part == "status" and await _is_interpreted(hub, info):
                why = components.refusal_of(info, new, old, subresource=part, is_summed_up=True)
            if not why and part == "scale" and not await _is_scaled(hub, new):
                why = "the controllers scale only what an autoscaler names"
            if why:
                raise _refused(admission, why)
        return admission.new


async def _is_scaled(hub: HubState, workload: Object) -> bool:
    """Whether an autoscaler that somebody wrote beside a workload names it: then it is scaled."""
    wanted = str(workload.get("kind")), name_of(workload)
    for resource in (*autoscalers.RESOURCES, _MEMBERS_AUTOSCALERS):
        for each in await stored_objects(hub, resource, namespace_of(workload)):
            named = find_at(each, "spec", "scaleTargetRef")
            if (find_at(named, "kind"), find_at(named, "name")) == wanted:
                return True
    return False


async def _is_interpreted(hub: HubState, info: ResourceInfo) -> bool:
    """Whether somebody says how the statuses of a kind are summed up: then the controllers may."""
    for each in await stored_objects(hub, interpreters.CUSTOMIZATIONS):
        named = interpreters.target_of(each) == (info.api_version, info.kind)
        if named and interpreters.script_of(each, interpreters.AGGREGATE_STATUS):
            return True
    hooks = interpreters.read_webhooks(
        await stored_objects(hub, interpreters.WEBHOOK_CONFIGURATIONS)
    )
    asked = interpreters.AGGREGATE_STATUS, info.group_version_kind
    return any(each.interprets(*asked) for each in hooks)


def _refused(admission: Admission, why: str) -> Forbidden:
    return statuses.forbidden(admission.served.info.group_resource, name_of(admission.new), why)
