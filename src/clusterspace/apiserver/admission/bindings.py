"""Bindings: what they are about stays in their namespace, and stays what it was.

A binding sends an object to members with the controllers' rights. So it names an object of its own
namespace (a ClusterResourceBinding one of none), never one of the control plane's, and it names
the same one for life: its name, its Works and the claims on it all follow from that.

What may change is how the object is known: its version and state, its UID when it was made anew,
and the version of its API, since hubs are upgraded.
"""

from collections.abc import Iterator
from typing import Final

from clusterspace.apis import bindings
from clusterspace.apis.bindings import TemplateReference, template_of
from clusterspace.apis.confinement import why_not_carried
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.errors import Cause, Malformed
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, metadata_of, name_of

_GROUP: Final = bindings.RESOURCE_BINDINGS.group
_KINDS: Final = frozenset({bindings.RESOURCE_BINDING, bindings.CLUSTER_RESOURCE_BINDING})
_RESOURCE: Final = "spec.resource"


class BindingRules:
    """Refuses bindings that reach out of their namespace, and changes of what one is about."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a binding; other objects pass."""
        info, binding = admission.served.info, admission.new
        if info.group != _GROUP or info.kind not in _KINDS or admission.subresource:
            return binding
        if metadata_of(admission.old or {}).get("deletionTimestamp"):
            return binding  # no rule may keep one from going
        if admission.old is None:
            found = tuple(_birth_causes(hub, binding))
        else:
            found = tuple(_change_causes(template_of(admission.old), template_of(binding)))
        if found:
            raise statuses.invalid(info.group_kind, name_of(binding), found)
        return binding


def _birth_causes(hub: HubState, binding: Object) -> Iterator[Cause]:
    about = template_of(binding)
    try:
        kind = about.group_version_kind
    except Malformed as error:
        yield causes.invalid(f"{_RESOURCE}.apiVersion", about.api_version, str(error))
        return
    served = hub.catalog.find_kind(kind.group, kind.kind)
    why = why_not_carried(binding, is_namespaced=None if served is None else served.info.namespaced)
    if why:
        yield causes.invalid(f"{_RESOURCE}.namespace", about.namespace, why)


def _change_causes(before: TemplateReference, after: TemplateReference) -> Iterator[Cause]:
    """Yield what makes another object of it; one that was wrong from the start is left as it is."""
    fields = ("apiVersion", "kind", "namespace", "name")
    for field, old, new in zip(fields, before.subject, after.subject, strict=True):
        if old != new:
            said = after.api_version if field == "apiVersion" else new
            why = "field is immutable: a binding is about one object, make another for another"
            yield causes.invalid(f"{_RESOURCE}.{field}", said, why)
