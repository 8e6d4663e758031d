"""Admission of MultiClusterServices and MultiClusterIngresses."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from clusterspace.apis.services import (
    GROUP,
    MULTI_CLUSTER_INGRESS,
    multi_cluster_ingress_causes,
    multi_cluster_service_causes,
)
from clusterspace.apis.works import (
    MULTI_CLUSTER_SERVICE,
)
from clusterspace.apiserver.admission.propagation import shape_causes
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.errors import Cause
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, is_being_deleted, name_of

_CAUSES: Final[Mapping[str, Callable[[Object, Object | None], Iterable[Cause]]]] = {
    MULTI_CLUSTER_SERVICE: multi_cluster_service_causes,
    MULTI_CLUSTER_INGRESS: multi_cluster_ingress_causes,
}


class ServiceRules(Plugin):
    """Checks what exposes Services over several clusters; one that is on its way out is let go."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a MultiClusterService or a MultiClusterIngress; other objects pass."""
        info, new = admission.served.info, admission.new
        causes_of = _CAUSES.get(info.kind) if info.group == GROUP else None
        if causes_of is None or admission.subresource or is_being_deleted(admission.old or {}):
            return new

        def checked() -> Object:
            found = shape_causes(admission) or list(causes_of(new, admission.old))
            if found:
                raise statuses.invalid(info.group_kind, name_of(new), found)
            return new

        return await admission.run(checked)
