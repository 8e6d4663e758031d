"""Admission of policies, overrides, registries, interpreters, placements, bindings and Works.

Defaults are filled in and invalid objects refused. A binding may not change which object it is
about, and the IDs of policies, bindings and Works are given once and kept. An object that is being
deleted is not refused for being invalid: nothing may keep it from going.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from clusterspace.apis import (
    envelopes,
    fleet_placements,
    interpreters,
    policies,
    registries,
    stamps,
    works,
)
from clusterspace.apis.fleet_overrides import (
    CLUSTER_KIND,
    NAMESPACED_KIND,
    fleet_override_causes,
)
from clusterspace.apis.fleet_placements import (
    NAMESPACE_WITH_SELECTORS,
    completed_placement,
    placement_causes,
)
from clusterspace.apis.overrides import override_causes
from clusterspace.apis.policies import (
    completed_policy,
    policy_causes,
)
from clusterspace.apis.registries import registry_causes
from clusterspace.apis.works import template_of, why_not_carried
from clusterspace.apiserver import forms
from clusterspace.apiserver.state import Admission, HubState, Operation, Plugin
from clusterspace.errors import Cause, Malformed
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource, ResourceInfo

_FINALIZERS: Final[Mapping[str, str]] = {
    policies.PROPAGATION_POLICY: stamps.POLICY_FINALIZER,
    policies.CLUSTER_PROPAGATION_POLICY: stamps.CLUSTER_POLICY_FINALIZER,
}
_OVERRIDES: Final = frozenset({policies.OVERRIDE_POLICY, policies.CLUSTER_OVERRIDE_POLICY})
_FLEET_OVERRIDES: Final = frozenset({CLUSTER_KIND, NAMESPACED_KIND})
_MISSHAPEN: Final = "FieldValueTypeInvalid"

_BINDINGS: Final = frozenset({works.RESOURCE_BINDING, works.CLUSTER_RESOURCE_BINDING})
_RESOURCE: Final = "spec.resource"

_NAMESPACE: Final = ("", "v1", "Namespace")

_KnownKinds: TypeAlias = Mapping[tuple[str, str, str], ResourceInfo]
"""What is served, by group, version and kind."""

LABELS: Final[Mapping[tuple[str, str], str]] = {
    ("policy.karmada.io", "PropagationPolicy"): "propagationpolicy.karmada.io/permanent-id",
    (
        "policy.karmada.io",
        "ClusterPropagationPolicy",
    ): "clusterpropagationpolicy.karmada.io/permanent-id",
    ("networking.karmada.io", "MultiClusterService"): "multiclusterservice.karmada.io/permanent-id",
    ("work.karmada.io", "ResourceBinding"): "resourcebinding.karmada.io/permanent-id",
    ("work.karmada.io", "ClusterResourceBinding"): "clusterresourcebinding.karmada.io/permanent-id",
    ("work.karmada.io", "Work"): "work.karmada.io/permanent-id",
}
"""Group and kind to the label that carries the ID."""


def _is_leaving(admission: Admission) -> bool:
    """Whether the write is one of those that let an object go: no rule may keep it from that."""
    return bool(metadata_of(admission.old or {}).get("deletionTimestamp"))


def shape_causes(admission: Admission) -> list[Cause]:
    """Return where an object has another shape than its kind: a list where a map belongs.

    The schema is asked once more when all plug-ins are done. But what they complete and check must
    have the shape they know.
    """
    problems = admission.served.rules.validate_create(admission.new)
    return [each for each in problems if each.reason == _MISSHAPEN]


class PolicyRules(Plugin):
    """Completes and checks policies of all five kinds.

    A new propagation policy has its finalizer from its first moment: between its creation and the
    first look of a controller it could otherwise be deleted without anybody taking its marks away.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Complete and check a policy; other objects pass."""
        info, new = admission.served.info, admission.new
        kinds = {*_FINALIZERS, *_OVERRIDES, policies.CLUSTER_TAINT_POLICY}
        is_ours = info.group == policies.GROUP and info.kind in kinds
        if not is_ours or admission.subresource:
            return new

        def checked() -> Object:
            if misshapen := shape_causes(admission):
                raise statuses.invalid(info.group_kind, name_of(new), misshapen)
            if info.kind in _FINALIZERS:
                policy, finalizer = completed_policy(new), _FINALIZERS[info.kind]
                finalizers: list[str] = metadata_of(policy).get("finalizers") or []
                if admission.is_create and finalizer not in finalizers:
                    policy = with_metadata(policy, finalizers=[*finalizers, finalizer])
                found = policy_causes(policy, admission.old)
            elif info.kind == policies.CLUSTER_TAINT_POLICY:
                policy, found = new, policies.taint_policy_causes(new)
            else:
                policy, found = new, override_causes(new)
            if found and not _is_leaving(admission):
                raise statuses.invalid(info.group_kind, name_of(policy), found)
            return policy

        return await admission.run(checked)


class RegistryRules(Plugin):
    """Checks ResourceRegistries: one that means nothing would show nothing, without a word."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a registry; other objects pass."""
        is_one = admission.is_of(registries.GROUP, registries.KIND)
        if not is_one or admission.subresource or _is_leaving(admission):
            return admission.new
        found = shape_causes(admission) or list(registry_causes(admission.new))
        if found:
            info = admission.served.info
            raise statuses.invalid(info.group_kind, name_of(admission.new), found)
        return admission.new


class InterpreterRules(Plugin):
    """Checks customizations and webhooks that interpret kinds: a contradiction is refused at once.

    Scripts are not run, nor read, here: they never come near the hub.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a customization or a configuration of webhooks; other objects pass."""
        info, new = admission.served.info, admission.new
        if info.group != interpreters.GROUP or admission.subresource or _is_leaving(admission):
            return new
        found = shape_causes(admission)
        if not found and info.kind == interpreters.CUSTOMIZATION:
            others = await stored_objects(hub, interpreters.CUSTOMIZATIONS)
            found = list(interpreters.customization_causes(new, others))
        elif not found and info.kind == interpreters.WEBHOOK_CONFIGURATION:
            found = list(interpreters.webhook_configuration_causes(new))
        if found:
            raise statuses.invalid(info.group_kind, name_of(new), found)
        return new


async def stored_objects(
    hub: HubState, resource: GroupVersionResource, namespace: str = ""
) -> list[Object]:
    """Return all objects of a resource, or those of one namespace; none where it is not served."""
    try:
        served = hub.catalog.get_storage(resource.group, resource.resource)
    except KeyError:
        return []
    page = await hub.store.range(served.prefix(namespace) if namespace else served.prefix())
    return [forms.decode_stored(entry, served.form) for entry in page.items]


class PlacementRules(Plugin):
    """Completes and checks placements of both kinds.

    What they select must be served, and of a scope that can be selected: everything else would
    only show later, on a placement that places nothing.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Complete and check a placement; other objects pass."""
        kinds = (each.kind for each in fleet_placements.SCOPES)
        is_one = any(admission.is_of(fleet_placements.GROUP, each) for each in kinds)
        if not is_one or admission.subresource or _is_leaving(admission):
            return admission.new
        infos = (served.info for served in hub.catalog.all())
        known = {(info.group, info.version, info.kind): info for info in infos}

        def checked() -> Object:
            placement = completed_placement(admission.new)
            found = (*placement_causes(placement, admission.old), *_kind_causes(known, placement))
            if found:
                raise statuses.invalid(admission.served.info.group_kind, name_of(placement), found)
            return placement

        return await admission.run(checked)


class FleetOverrideRules(Plugin):
    """Checks ClusterResourceOverrides and ResourceOverrides.

    What each selects must not be selected by another of its kind: two at once may both pass, then
    they apply in the order of their names.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check an override; other objects pass."""
        info, override = admission.served.info, admission.new
        is_one = info.group == fleet_placements.GROUP and info.kind in _FLEET_OVERRIDES
        if not is_one or admission.subresource or _is_leaving(admission):
            return override
        if misshapen := shape_causes(admission):
            raise statuses.invalid(info.group_kind, name_of(override), misshapen)
        page = await hub.store.range(admission.served.prefix())
        stored = [forms.decode_stored(entry, admission.served.form) for entry in page.items]

        def checked() -> Object:
            found = fleet_override_causes(override, admission.old, stored)
            if found:
                raise statuses.invalid(info.group_kind, name_of(override), found)
            return override

        return await admission.run(checked)


class EnvelopeRules(Plugin):
    """Checks what is in envelopes: it is to be made on members, where nobody is there to ask."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check an envelope; other objects pass."""
        info, envelope = admission.served.info, admission.new
        is_one = info.group_kind in envelopes.KINDS
        if not is_one or admission.subresource or _is_leaving(admission):
            return envelope
        found = list(envelopes.envelope_causes(envelope))
        if found:
            raise statuses.invalid(info.group_kind, name_of(envelope), found)
        return envelope


def _kind_causes(known: _KnownKinds, placement: Object) -> Iterator[Cause]:
    selectors: list[Object] = find_at(placement, "spec", "resourceSelectors") or []
    kinds = [
        (str(each.get("group") or ""), str(each.get("version") or ""), str(each.get("kind") or ""))
        for each in selectors
    ]
    is_partial = any(
        kind == _NAMESPACE and each.get("selectionScope") == NAMESPACE_WITH_SELECTORS
        for kind, each in zip(kinds, selectors, strict=True)
    )
    for index, (group, version, kind) in enumerate(kinds):
        field = f"spec.resourceSelectors[{index}].kind"
        info = known.get((group, version, kind))
        if info is None:
            api_version = "/".join(filter(None, (group, version)))
            yield causes.invalid(field, kind, f"the hub serves no {kind} of {api_version}")
        elif placement.get("kind") == fleet_placements.NAMESPACED_KIND:
            if not info.namespaced:
                why = "has no namespace: a ClusterResourcePlacement places it"
                yield causes.invalid(field, kind, why)
        elif info.namespaced and not is_partial:
            why = "is namespaced: select its Namespace, and what is in it goes along"
            yield causes.invalid(field, kind, why)


class BindingRules(Plugin):
    """Refuses bindings that reach out of their namespace, and changes of what one is about.

    A binding sends an object to members with the controllers' rights. So it names an object of its
    own namespace (a ClusterResourceBinding one of none), never one of the control plane's, and it
    names the same one for life: its name, its Works and the claims on it all follow from that.

    What may change is how the object is known: its version and state, its UID when it was made
    anew, and the version of its API, since hubs are upgraded.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a binding; other objects pass."""
        info, binding = admission.served.info, admission.new
        is_binding = info.group == works.RESOURCE_BINDINGS.group and info.kind in _BINDINGS
        if not is_binding or admission.subresource or _is_leaving(admission):
            return binding
        template, found = template_of(binding), list[Cause]()
        if admission.old is not None:
            # One that was wrong from the start is left as it is; it must not become another.
            why = "field is immutable: a binding is about one object, make another for another"
            fields = ("apiVersion", "kind", "namespace", "name")
            before = template_of(admission.old).subject
            for field, old, new in zip(fields, before, template.subject, strict=True):
                if old != new:
                    said = template.api_version if field == "apiVersion" else new
                    found.append(causes.invalid(f"{_RESOURCE}.{field}", said, why))
        else:
            try:
                kind = template.group_version_kind
            except Malformed as error:
                cause = causes.invalid(f"{_RESOURCE}.apiVersion", template.api_version, str(error))
                raise statuses.invalid(info.group_kind, name_of(binding), (cause,)) from error
            served = hub.catalog.find_kind(kind.group, kind.kind)
            is_namespaced = None if served is None else served.info.namespaced
            why = why_not_carried(binding, is_namespaced=is_namespaced)
            if why:
                found.append(causes.invalid(f"{_RESOURCE}.namespace", template.namespace, why))
        if found:
            raise statuses.invalid(info.group_kind, name_of(binding), found)
        return binding


class DeletionProtection(Plugin):
    """Refuses to delete what its label protects, whoever asks.

    Namespaces end by the same deletes, so one that holds such an object begins to go and waits for
    the label; and what goes with its owner stays.
    """

    handles = frozenset({Operation.DELETE})

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse the first delete; what is on its way out already goes."""
        old = admission.old or {}
        if labels_of(old).get(stamps.DELETION_PROTECTED) != "Always" or is_being_deleted(old):
            return
        # Karmada's words, which its clients look for.
        why = (
            "This resource is protected, please make sure to remove the label: "
            f"{stamps.DELETION_PROTECTED}"
        )
        raise statuses.forbidden(admission.served.info.group_resource, name_of(old), why)


class PermanentIds(Plugin):
    """Gives IDs to new policies, bindings and Works, and keeps those of old ones.

    Others find them by it: an object whose ID is lost or replaced looks like an orphan, and orphans
    get cleaned up. So it is given once, put back when somebody leaves it out, and never changed.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Give, put back, or refuse to change."""
        info, new = admission.served.info, admission.new
        label = LABELS.get((info.group, info.kind))
        if label is None:
            return new
        existing = labels_of(admission.old).get(label) if admission.old is not None else None
        given = labels_of(new).get(label)
        if existing and given and given != existing:
            cause = causes.invalid(f"metadata.labels[{label}]", given, "field is immutable")
            raise statuses.invalid(info.group_kind, name_of(new), (cause,))
        if given:
            return new
        return with_metadata(new, labels={**labels_of(new), label: existing or hub.new_uid()})
