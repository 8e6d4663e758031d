"""No new content in a namespace that is not there or is ending."""

from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.errors import Cause
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of
from clusterspace.kube.resources import GroupResource

NAMESPACES: Final = GroupResource("", "namespaces")


class NamespaceLifecycle:
    """Refuses new objects where there is no place for them."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Let changes pass; look at the namespace of what is new."""
        new = admission.new
        if not admission.is_create or not admission.served.info.namespaced:
            return new
        namespace = namespace_of(new)
        served = hub.catalog.get_storage("", "namespaces")
        entry = await hub.store.get(served.key("", namespace))
        if entry is None:
            raise statuses.not_found(NAMESPACES, namespace)
        if find_at(forms.decode_stored(entry, served.form), "metadata", "deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace} "
                "because it is being terminated"
            )
            cause = Cause(
                "NamespaceTerminating",
                f"namespace {namespace} is being terminated",
                "metadata.namespace",
            )
            resource = admission.served.info.group_resource
            raise statuses.forbidden(resource, name_of(new), why, (cause,))
        return new
